"""A TCP proxy with a round trip of its own: ``python -m bench.delay PORT MILLISECONDS`` prints the port it listens on.

Every byte takes half the round trip in either direction, whatever its neighbours do; a connection's first byte waits
one round trip more, which is what opening it would have taken.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys

PIECE = 64 * 1024


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int, round_trip: float) -> None:
    opened = asyncio.get_running_loop().time() + round_trip
    far_reader, far_writer = await asyncio.open_connection("127.0.0.1", port)
    await asyncio.gather(
        _pass_on(reader, far_writer, round_trip / 2, opened),
        _pass_on(far_reader, writer, round_trip / 2, opened),
    )


async def _pass_on(source: asyncio.StreamReader, sink: asyncio.StreamWriter, delay: float, opened: float) -> None:
    clock = asyncio.get_running_loop().time
    on_the_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

    async def arrive() -> None:
        data = b" "
        while data:
            due, data = await on_the_way.get()
            await asyncio.sleep(due - clock())
            sink.write(data)
            await sink.drain()

    arriving = asyncio.create_task(arrive())
    with contextlib.suppress(OSError):
        while data := await source.read(PIECE):
            on_the_way.put_nowait((max(clock(), opened) + delay, data))
    on_the_way.put_nowait((max(clock(), opened) + delay, b""))
    with contextlib.suppress(OSError):
        await arriving
    sink.close()


async def _main(port: int, round_trip: float) -> None:
    server = await asyncio.start_server(lambda r, w: _serve(r, w, port, round_trip), "127.0.0.1", 0, backlog=100)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_main(int(sys.argv[1]), float(sys.argv[2]) / 1000))
