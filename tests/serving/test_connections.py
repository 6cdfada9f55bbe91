"""How responses leave: no part of one waits for the client's acknowledgement of another."""

import asyncio
import contextlib
import socket

import uvicorn

from bayesify.serving.connections import JoinedWrites, protocol_of
from bayesify.serving.limits import Limits
from bayesify.serving.server import listen
from bayesify.serving.workers import listen_shared


def delays(listening):
    """Whether a connection that asyncio accepts at a socket has Nagle's algorithm switched on."""

    async def connect():
        found = asyncio.get_running_loop().create_future()

        def accepted(_, writer):
            accepted_socket = writer.get_extra_info("socket")
            found.set_result(not accepted_socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            writer.close()

        async with await asyncio.start_server(accepted, sock=listening):
            _, writer = await asyncio.open_connection(*listening.getsockname()[:2])
            try:
                return await asyncio.wait_for(found, 120)
            finally:
                writer.close()

    return asyncio.run(connect())


def test_connections_of_one_worker_and_of_several_do_not_delay_small_writes():
    # With delays, two workers answered a fifth of the requests of one: each response waited 40 ms for its second part.
    with contextlib.closing(listen("127.0.0.1", 0)) as one:
        assert not delays(one)
    for used in (0, 1):
        sockets = listen_shared("127.0.0.1", 0, 2)
        # The kernel gives a connection to either socket, so the other one must be closed.
        sockets[1 - used].close()
        assert not delays(sockets[used])


class Sent(asyncio.Transport):
    def __init__(self):
        super().__init__()
        self.sent, self.closed = [], False

    def write(self, data):
        self.sent.append(bytes(data))

    def is_closing(self):
        return self.closed

    def close(self):
        self.closed = True

    def write_eof(self):
        pass

    def pause_reading(self):
        pass

    def abort(self):
        self.closed = True


def written(*steps):
    """What is sent when each step is done in a turn of the event loop of its own."""
    transport = Sent()

    async def write():
        joined = JoinedWrites(transport, asyncio.get_running_loop())
        for step in steps:
            step(joined)
            await asyncio.sleep(0)

    asyncio.run(write())
    return transport


def test_the_head_of_a_response_leaves_with_its_body():
    def respond(joined):
        joined.write(b"head")
        joined.write(b"body")

    assert written(respond, respond).sent == [b"headbody", b"headbody"]


def test_what_has_no_second_part_leaves_at_the_next_turn_and_before_the_end():
    assert written(lambda joined: joined.write(b"head"), lambda _: None).sent == [b"head"]

    def respond_and_close(joined):
        joined.write(b"head")
        joined.close()
        joined.write(b"late")

    transport = written(respond_and_close, lambda _: None)
    assert transport.closed
    assert transport.sent == [b"head"]


def test_large_parts_leave_at_once_and_in_order():
    large = bytes(100_000)

    def respond(joined):
        joined.write(b"head")
        joined.write(large)
        joined.write(large)

    assert written(respond).sent == [b"head" + large, large]


def test_a_request_in_the_reserve_is_answered_though_others_come_before_its_response():
    """Its head is complete, and its response begins in the event loop's next turn: the next connection came before that."""

    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})

    async def talk():
        config = uvicorn.Config(app, lifespan="off", log_config=None)
        config.load()
        kind, state = protocol_of(Limits(connections=1, reserve=1)), uvicorn.server.ServerState()
        transports = [Sent() for _ in range(3)]
        taken, asks, late = (kind(config=config, server_state=state, app_state={}) for _ in transports)
        taken.connection_made(transports[0])
        taken.data_received(b"GET / HTTP/1.1\r\nX-Half: ")
        asks.connection_made(transports[1])
        asks.data_received(b"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
        late.connection_made(transports[2])
        for _ in range(100):  # turns of the event loop, however long each takes
            await asyncio.sleep(0)
        for protocol in (taken, asks, late):
            protocol.connection_lost(None)
        return [b"".join(transport.sent)[:12] for transport in transports]

    assert asyncio.run(talk()) == [b"", b"HTTP/1.1 200", b"HTTP/1.1 429"]
