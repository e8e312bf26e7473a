"""A consumer of events, as Dynamo's and vLLM's are: it knows names and parents, no more."""

import msgspec
import zmq

END = 2**64 - 1


class Held:
    """Which blocks are there, by name: tokens of each, and its parent."""

    def __init__(self):
        self.blocks, self.next = {}, 0

    def apply(self, number, batch):
        assert number == self.next, "a gap"
        self.next += 1
        _, events, _ = msgspec.msgpack.decode(batch)
        for event in events:
            getattr(self, event["type"])(event)

    def BlockStored(self, event):
        parent, size = event["parent_block_hash"], event["block_size"]
        assert parent is None or parent in self.blocks
        assert len(event["token_ids"]) == size * len(event["block_hashes"])
        for at, name in enumerate(event["block_hashes"]):
            assert name not in self.blocks
            self.blocks[name] = tuple(event["token_ids"][at * size : (at + 1) * size]), parent
            parent = name

    def BlockRemoved(self, event):
        for name in event["block_hashes"]:
            del self.blocks[name]

    def AllBlocksCleared(self, event):
        self.blocks.clear()

    def match(self, ids, size):
        """How many tokens of `ids` are there, in whole blocks from the root."""
        below = {(parent, tokens): name for name, (tokens, parent) in self.blocks.items()}
        at, name = 0, None
        while at + size <= len(ids):
            name = below.get((name, tuple(ids[at : at + size])))
            if name is None:
                break
            at += size
        return at


class Subscriber:
    """Reads a publisher's batches."""

    def __init__(self, publisher):
        self.context = zmq.Context()
        self.sub = self.context.socket(zmq.SUB)
        self.sub.connect(publisher.endpoint)
        self.sub.subscribe(b"")
        self.replay = self.context.socket(zmq.DEALER)
        if publisher.replay_endpoint:
            self.replay.connect(publisher.replay_endpoint)
        for socket in (self.sub, self.replay):
            socket.setsockopt(zmq.RCVTIMEO, 5000)

    def has_come(self):
        """Whether a batch is there within a moment."""
        return self.sub.poll(50) != 0

    def receive(self):
        topic, number, batch = self.sub.recv_multipart()
        return topic, int.from_bytes(number, "big"), batch

    def replayed(self, start):
        """What was sent from number `start` on."""
        self.replay.send_multipart((b"", start.to_bytes(8, "big")))
        while True:
            _, _, number, batch = self.replay.recv_multipart()
            if int.from_bytes(number, "big") == END:
                return
            yield int.from_bytes(number, "big"), batch

    def close(self):
        self.context.destroy(linger=0)
