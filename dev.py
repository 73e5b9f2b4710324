#!/usr/bin/env python3
"""The one entry for people: try Mingora, run it, test it, check it, measure it, pack its tools.

Needs Python 3.11 or newer with venv and pip; everything else goes into `.venv` beside this file.
"""

import sys

# An older Python has to read this file to its answer: no annotations and no new syntax here.
if sys.version_info < (3, 11):
    sys.exit("dev.py needs Python 3.11 or newer. Try: python3.11 dev.py")

if __name__ == "__main__":
    try:
        from devtools.entry import main

        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.stderr.write("\nStopped.\n")
        sys.exit(130)
    except OSError as problem:
        sys.exit("dev.py: %s" % problem)  # noqa: UP031 - see above
