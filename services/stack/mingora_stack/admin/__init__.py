"""``mingora-admin`` as a whole: api's commands, and those that take more than one service's data.

``archive`` is the format, ``exporting`` and ``importing`` fill and empty it, ``cli`` puts them on the command line.
"""
