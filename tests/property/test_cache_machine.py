"""PrefixCache against its model, operation by operation, whatever the order."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from tests.support.cache_driver import CacheDriver
from tests.support.trees import CORES


class Drawn:
    """Choices that hypothesis makes, and makes simpler when they fail."""

    def __init__(self, data) -> None:
        self.data = data

    def between(self, low, high):
        return self.data.draw(st.integers(low, high))

    def pick(self, options):
        return self.data.draw(st.sampled_from(options))

    def chance(self, percent):
        return self.data.draw(st.integers(0, 99)) >= 100 - percent


class CacheMachine(RuleBasedStateMachine):
    """One rule: the driver says which operations there are, and how often each is worth it."""

    @initialize(data=st.data(), core=st.sampled_from(CORES))
    def begin(self, data, core):
        self.driver = CacheDriver(Drawn(data), core)

    @rule(data=st.data())
    def step(self, data):
        self.driver.choose = Drawn(data)
        self.driver.step()
        self.driver.compare()


TestCacheMachine = CacheMachine.TestCase
# Half as many as others, each of more steps: it is the longest test there is.
TestCacheMachine.settings = settings(
    max_examples=max(50, settings().max_examples // 2), stateful_step_count=60
)
