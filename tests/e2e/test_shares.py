"""What a hostile tenant learns and takes of another: a server as operators run it, with shares.

The prober is bound to salt a; an engine serves the prompts of b from the same pool. Whatever b asks
for, every answer that the prober gets must be the same.
"""

from contextlib import ExitStack, suppress

import pytest

from radixkv import Namespace, errors
from radixkv.service import Client, InsertCall

A, B = Namespace(salt="a"), Namespace(salt="b")
NUM_SLOTS, OWN, SECRET = 2_000, 800, 300
TOKENS = """
[[token]]
name = "engine"
role = "data"
token = "engine"

[[token]]
name = "a"
role = "data"
token = "a"
salt = "a"
slots = 100

[[token]]
name = "b"
role = "data"
token = "b"
salt = "b"
"""
SHARES = f"""
[[share]]
salt = "a"
reserve = {OWN}
cap = {OWN}

[[share]]
salt = "b"
reserve = 700
cap = 700
"""
SECRETS = list(range(100, 100 + SECRET))
# What b asks for while the prober looks: a hit, a miss, some of both; more than its share holds.
QUESTIONS = [
    [SECRETS],
    [list(range(5_000, 5_211))],
    [SECRETS, [*SECRETS, *range(900, 950)]],
    [list(range(start, start + 250)) for start in range(20_000, 25_000, 250)],
]


class Tenants:
    """The prober's client and lease, and an engine that serves b."""

    def __init__(self, address, stack):
        self.engine, self.a, self.b = (
            stack.enter_context(Client(address, token=name, timeout_s=60))
            for name in ("engine", "a", "b")
        )
        self.engine_lease = stack.enter_context(self.engine.lease(300, pool_id="p"))
        self.lease = stack.enter_context(self.a.lease(300, pool_id="p"))
        self.own = [[at] for at in range(100_000, 100_000 + OWN)]

    def fill(self):
        """The prober caches as many prefixes of one token as it may keep, and some more."""
        for start in range(0, OWN + 100, 100):
            slots = self.lease.allocate(100).slots
            calls = [InsertCall([100_000 + start + at], slots[at : at + 1]) for at in range(100)]
            self.lease.insert(calls, A)

    def serve_b(self, prompt):
        (match,) = self.engine_lease.pin(prompt, B).matches
        rest = prompt[match.length :]
        slots = self.engine_lease.allocate(len(rest)).slots if rest else []
        self.engine_lease.insert(InsertCall(rest, slots, match.pin_id), B)

    def seen_by_the_prober(self):
        """Every answer it can get but the numbers of slots."""
        found = self.a.match(self.own, A, probe=True)
        yield found.lengths, found.revision
        granted = self.lease.allocate(1)
        yield granted.num_evicted
        self.lease.free(granted.slots)
        for number in (101, NUM_SLOTS + 1):
            with pytest.raises(errors.RadixKVError) as caught:
                self.lease.allocate(number)
            yield str(caught.value), caught.value.details
        sizes = self.a.stats(A)
        yield sizes.evictable_size, sizes.protected_size, sizes.num_nodes, sizes.revision


def as_often_as_allowed(call):
    """How often it may be made before a quota ends it."""
    times = 0
    with suppress(errors.OverloadedError):
        while True:
            call()
            times += 1
    return times


@pytest.fixture
def meet(serve, tmp_path):
    """`meet(*arguments)`: the tenants of a server with these arguments."""
    tokens = tmp_path / "tokens.toml"
    tokens.write_text(TOKENS)
    with ExitStack() as stack:
        yield lambda *arguments: Tenants(
            serve("--slots", str(NUM_SLOTS), "--tokens", str(tokens), *arguments).address, stack
        )


@pytest.fixture
def shares(tmp_path):
    """What `radixkv serve` is to be given."""
    file = tmp_path / "shares.toml"
    file.write_text(SHARES)
    return "--shares", str(file)


def test_a_prober_sees_the_same_whatever_another_tenant_asks_for(meet, shares):
    tenants = meet(*shares)
    tenants.fill()
    tenants.serve_b(SECRETS)
    before = list(tenants.seen_by_the_prober())
    for prompts in QUESTIONS:
        for prompt in prompts:
            tenants.serve_b(prompt)
        assert list(tenants.seen_by_the_prober()) == before
    assert sum(before[0][0]) == OWN - 100  # the last hundred that it stored took their place


def test_without_shares_a_prober_counts_the_tokens_that_another_computes(meet):
    """The channel itself: what the test above would miss if it looked at nothing."""
    tenants = meet()
    tenants.engine_lease.allocate(NUM_SLOTS - OWN - 100)
    tenants.fill()
    tenants.a.match(tenants.own, A)
    before = sum(tenants.a.match(tenants.own, A, probe=True).lengths)
    tenants.serve_b(list(range(5_000, 5_211)))
    assert before - sum(tenants.a.match(tenants.own, A, probe=True).lengths) == 211 - 100


def test_a_tenant_that_takes_all_it_can_leaves_the_other_what_is_its_own(meet, shares):
    tenants = meet(*shares)
    tenants.serve_b(SECRETS)
    tenants.fill()
    assert as_often_as_allowed(lambda: tenants.lease.allocate(50)) == 2
    assert tenants.b.match([SECRETS], B, probe=True).lengths == [SECRET]
    tenants.serve_b(list(range(7_000, 7_350)))
    with ExitStack() as leases:
        as_often_as_allowed(lambda: leases.enter_context(tenants.a.lease(300, pool_id="p")))
        with tenants.b.lease(10, pool_id="p") as lease:
            assert lease.allocate(100).num_evicted == 0
