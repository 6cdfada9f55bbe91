"""A real server on a real socket, in a thread of this process, and a plain client for it."""

import http.client
import json
import threading
import time
from contextlib import contextmanager
from urllib.parse import urlsplit

from bayesify.serving.server import address_of, listen, make_server

JSON = {"Content-Type": "application/json"}


class Reply:
    def __init__(self, response):
        self.status = response.status
        self.headers = {name.lower(): value for name, value in response.getheaders()}
        self.body = response.read()

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def error(self):
        assert set(self.json) == {"error"}
        assert "\n" not in self.json["error"]
        return self.json["error"]


class Client:
    """One request per connection: what is tested is the server, not the reuse of connections."""

    def __init__(self, url):
        self.url = url
        self.place = urlsplit(url)

    def ask(self, method, path, body=None, headers=None):
        connection = http.client.HTTPConnection(self.place.hostname, self.place.port, timeout=120)
        try:
            connection.request(method, path, body, headers or {})
            return Reply(connection.getresponse())
        finally:
            connection.close()

    def get(self, path, **headers):
        return self.ask("GET", path, headers=headers)

    def post(self, path, content, **headers):
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        return self.ask("POST", path, body, JSON | headers)

    def infer(self, model, array, datatype="FP64", **more):
        tensor = {"name": "input", "shape": list(array.shape), "datatype": datatype, "data": array.ravel().tolist()}
        return self.post(f"/v2/models/{model}/infer", {"inputs": [tensor], **more})

    def tensors(self, model, array, datatype="FP64", **more):
        """Output tensors by name, as (datatype, shape, data)."""
        reply = self.infer(model, array, datatype, **more)
        assert reply.status == 200, reply.body
        return {t["name"]: (t["datatype"], t["shape"], t["data"]) for t in reply.json["outputs"]}


@contextmanager
def serving(registry, *, wait=True, **options):
    """The registry's models, served until the block ends; yields a client whose `server` and `thread` are at hand."""
    loaded = threading.Event()
    opened = listen("127.0.0.1", 0)
    server = make_server(registry, on_loaded=loaded.set, **options)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [opened]}, daemon=True)
    client = Client(address_of(opened))
    thread.start()
    try:
        until = time.monotonic() + 120
        while not server.started:
            assert time.monotonic() < until
            time.sleep(0.005)
        assert not wait or loaded.wait(120)
        assert registry.failure is None
        client.server, client.thread, client.registry = server, thread, registry
        yield client
    finally:
        server.should_exit = True
        thread.join(120)
        assert not thread.is_alive()


class Held:
    """Holds a model's predictions back until `open` is set."""

    def __init__(self, model):
        self.open, self.reached = threading.Event(), threading.Event()
        predict = model.predictor.predict

        def held(*arguments):
            self.reached.set()
            assert self.open.wait(120)
            return predict(*arguments)

        model.predictor.predict = held


def in_background(function, *arguments):
    """Call in a thread; the result is in the list that comes back with the thread."""
    results = []
    thread = threading.Thread(target=lambda: results.append(function(*arguments)), daemon=True)
    thread.start()
    return thread, results
