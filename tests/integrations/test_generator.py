"""Generator: the same tokens as the model alone, whatever the pool, and nothing left behind."""

import gc
import random
import sys
import threading
import weakref
from itertools import pairwise

import pytest
import torch

from radixkv import Namespace, PrefixCache
from radixkv.errors import (
    InvalidArgumentError,
    InvalidNamespaceError,
    InvalidTokensError,
    PromptTooLongError,
    StaleWeightsError,
)
from radixkv.integrations.transformers import Generator, pool_for
from radixkv.integrations.transformers.generator import _on_their_way
from tests.support.waiting import run_threads

SYSTEM = [5, 9, 2, 14, 7, 3, 11, 60, 61, 62, 8, 4]
PROMPTS = [[*SYSTEM, 20 + i, 40 - i, *range(i)] for i in range(8)]


def assert_nothing_is_held(generator):
    """I6: with no live request nothing is protected, private or waiting."""
    stats = generator.cache.stats()
    assert generator.cache.check_integrity() == []
    assert (stats.live_requests, stats.allocated, stats.protected, stats.waiting) == (0, 0, 0, 0)
    assert (generator.num_waiting, generator.num_running) == (0, 0)


def run_checked(generator):
    """Run, with every invariant checked after each step."""
    while generator.step():
        assert generator.cache.check_integrity() == []
    assert_nothing_is_held(generator)


@pytest.mark.parametrize("page_size", [1, 4])
@pytest.mark.parametrize("chunk_size", [1, 5, None])
@pytest.mark.parametrize("reuse", [True, False])
def test_the_same_tokens_as_the_model_alone(tiny_llama, alone, page_size, chunk_size, reuse):
    generator = Generator(
        tiny_llama,
        num_slots=200,
        page_size=page_size,
        chunk_size=chunk_size,
        max_batch=3,
        reuse=reuse,
    )
    generations = [generator.submit(prompt, 6) for prompt in PROMPTS]
    run_checked(generator)
    for prompt, generation in zip(PROMPTS, generations, strict=True):
        assert generation.tokens == alone(prompt, 6)
        assert generation.finish_reason == "length"
        numbers = generation.numbers
        assert numbers.prompt_tokens == numbers.cached_tokens + numbers.computed_tokens
        assert numbers.time_to_first_token_s > 0
    cached = sum(generation.numbers.cached_tokens for generation in generations)
    assert (cached > 0) == (generator.cache.tree.total_size > 0) == reuse


@pytest.mark.parametrize("reuse", [True, False])
@pytest.mark.parametrize("page_size", [1, 4])
@pytest.mark.parametrize("policy", ["lru", "fifo"])
def test_a_pool_far_too_small_evicts_retracts_and_ends(tiny_llama, alone, page_size, policy, reuse):
    generator = Generator(
        tiny_llama,
        num_slots=48,
        page_size=page_size,
        chunk_size=7,
        max_batch=6,
        policy=policy,
        reuse=reuse,
    )
    generations = [generator.submit(prompt, 12) for prompt in PROMPTS * 2]
    run_checked(generator)
    for prompt, generation in zip(PROMPTS * 2, generations, strict=True):
        assert generation.tokens == alone(prompt, 12)
        assert generation.numbers.cached_tokens < generation.numbers.prompt_tokens
    assert sum(generation.numbers.retractions for generation in generations) > 0
    if reuse:
        assert generator.cache.stats().evicted_tokens > 0
        assert sum(generation.numbers.resumed_tokens for generation in generations) > 0


def test_random_comings_and_goings_in_a_small_pool(tiny_llama, alone):
    rng = random.Random(7)
    for page_size, num_slots in [(1, 30), (4, 40)]:
        generator = Generator(
            tiny_llama, num_slots=num_slots, page_size=page_size, chunk_size=4, max_batch=4
        )
        generations = []
        for _ in range(150):
            act = rng.random()
            if act < 0.3:
                prompt = SYSTEM[: rng.randint(1, 12)] + rng.choices(range(3), k=rng.randint(0, 8))
                generations.append(generator.submit(prompt, rng.randint(1, 8)))
            elif act < 0.4 and generations:
                rng.choice(generations).cancel()
            else:
                generator.step()
            assert generator.cache.check_integrity() == []
        run_checked(generator)
        for generation in generations:
            expected = alone(generation.prompt.tolist(), len(generation.tokens))
            assert generation.tokens == expected
            assert generation.finish_reason in ("length", "cancelled")


def test_a_prompt_that_is_cached_whole_has_its_last_token_computed(tiny_llama, alone):
    generator = Generator(tiny_llama, num_slots=64)
    generator.submit(SYSTEM, 1)
    generator.run()
    again = generator.submit(SYSTEM, 4)
    generator.run()
    assert (again.numbers.cached_tokens, again.numbers.computed_tokens) == (len(SYSTEM) - 1, 1)
    assert again.tokens == alone(SYSTEM, 4)


def test_a_prompt_that_is_cached_whole_waits_for_no_other(tiny_llama):
    generator = Generator(tiny_llama, num_slots=64)
    generator.submit(SYSTEM, 1)
    generator.run()
    both = [generator.submit(SYSTEM, 1), generator.submit(SYSTEM, 1)]
    generator.step()
    assert all(each.is_done for each in both)


def test_what_was_generated_is_shared_by_the_next_turn(tiny_llama, alone):
    generator = Generator(tiny_llama, num_slots=64)
    first = generator.submit(SYSTEM, 6)
    generator.run()
    turn = [*SYSTEM, *first.tokens, 50, 51]
    second = generator.submit(turn, 4)
    generator.run()
    # The last generated token was never computed.
    assert second.numbers.cached_tokens == len(SYSTEM) + 5
    assert second.tokens == alone(turn, 4)


@pytest.mark.parametrize(
    ("chunk_size", "page_size", "cached"),
    [(1, 1, 12), (4, 1, 12), (None, 1, 12), (1, 4, 12), (1, 8, 8), (None, 8, 8)],
)
def test_prompts_that_come_at_once_compute_what_they_share_once(
    tiny_llama, chunk_size, page_size, cached
):
    generator = Generator(
        tiny_llama, num_slots=200, chunk_size=chunk_size, page_size=page_size, max_batch=5
    )
    generations = [generator.submit([*SYSTEM, 20 + i, 50], 2) for i in range(4)]
    steps = 0
    while generator.step():
        steps += 1
    assert [each.numbers.cached_tokens for each in generations] == [0, *[cached] * 3]
    # Waiting for the first costs the others one step at most: they would have computed the same.
    assert steps <= -(-14 // (chunk_size or 14)) + 1 + 2


def test_who_waits_for_another_holds_up_no_other(tiny_llama):
    generator = Generator(tiny_llama, num_slots=200, chunk_size=1)
    for prompt in (SYSTEM, [*SYSTEM, 1], [90, 91]):
        generator.submit(prompt, 1)
    generator.step()
    assert (generator.num_running, generator.num_waiting) == (2, 1)


def test_a_short_common_beginning_is_not_waited_for(tiny_llama):
    generator = Generator(tiny_llama, num_slots=200, chunk_size=5)
    for last in (20, 40):
        generator.submit([*SYSTEM[:4], *range(last, last + 10)], 1)
    generator.step()
    assert generator.num_running == 2


def test_without_reuse_nothing_is_taken_from_a_cache_that_has_it(tiny_llama, alone):
    cache = PrefixCache(64)
    reusing = Generator(tiny_llama, cache=cache)
    reusing.submit(SYSTEM, 1)
    reusing.run()
    not_reusing = Generator(tiny_llama, cache=cache, reuse=False)
    generation = not_reusing.submit(SYSTEM, 2)
    not_reusing.run()
    assert generation.numbers.cached_tokens == 0
    assert generation.tokens == alone(SYSTEM, 2)


def test_a_retracted_generation_finds_what_it_had_computed(tiny_llama, alone):
    generator = Generator(tiny_llama, num_slots=20)
    generator.submit(SYSTEM, 4)
    young = generator.submit([1, 2, 3], 12)
    run_checked(generator)
    # The fourth step has a slot for the older one's 15th token and none for the younger one's 6th.
    assert (young.numbers.retractions, young.numbers.resumed_tokens) == (1, 5)
    assert young.numbers.computed_tokens == 3 + 1
    assert young.tokens == alone([1, 2, 3], 12)


def test_chunks_are_shared_as_they_are_computed(tiny_llama):
    generator = Generator(tiny_llama, num_slots=64, chunk_size=5)
    generator.submit(SYSTEM, 1)
    for computed in (5, 10):
        generator.step()
        assert generator.cache.probe(SYSTEM) == computed


def test_decoding_goes_on_beside_a_long_prefill(tiny_llama):
    generator = Generator(tiny_llama, num_slots=128, chunk_size=2)
    early = generator.submit([1, 2], 10)
    generator.step()
    late = generator.submit([7] * 12, 1)
    for step in range(1, 6):
        generator.step()
        assert len(early.tokens) == 1 + step
        assert not late.tokens


def test_namespaces_share_nothing(tiny_llama, alone):
    generator = Generator(tiny_llama, num_slots=128)
    for salt in ("a", "b", "a"):
        generation = generator.submit(SYSTEM, 2, namespace=Namespace(salt=salt))
        generator.run()
        assert generation.tokens == alone(SYSTEM, 2)
    stats = generator.cache.stats()
    assert stats.cached_tokens == len(SYSTEM) - 1


def test_the_end_token_ends_and_is_the_last(tiny_llama, alone):
    tokens = alone(SYSTEM, 8)
    generator = Generator(tiny_llama, num_slots=64)
    generation = generator.submit(SYSTEM, 8, eos_ids=[tokens[3]])
    generator.run()
    assert generation.tokens == tokens[: tokens.index(tokens[3]) + 1]
    assert generation.finish_reason == "stop"


def test_logits_are_kept_on_demand(tiny_llama):
    generator = Generator(tiny_llama, num_slots=64)
    kept, plain = generator.submit(SYSTEM, 3, keep_logits=True), generator.submit([1, 2], 3)
    generator.run()
    assert plain.logits == []
    assert kept.logits[0].untyped_storage().nbytes() == 97 * 4
    with torch.no_grad():
        expected = tiny_llama(torch.tensor([SYSTEM + kept.tokens])).logits[0, len(SYSTEM) - 1 : -1]
    assert (torch.stack(kept.logits) - expected).abs().max() < 1e-5


def test_what_nobody_holds_any_more_is_gone_at_once(tiny_llama):
    """Its pool may be most of a card's memory, and the next generator's must find room."""
    gc.collect()
    gc.disable()
    try:
        generator = Generator(tiny_llama, num_slots=100)
        generation = generator.submit(SYSTEM, 3)
        generator.run()
        pool, cache = weakref.ref(generator.pool), weakref.ref(generator.cache)
        del generator, generation
        assert (pool(), cache()) == (None, None)
    finally:
        gc.enable()


def test_tokens_are_waited_for_on_the_stream_of_their_own_device(monkeypatch):
    """The present device may be another: its stream knows nothing of the copy."""
    seen = []

    class Tokens:
        is_cuda, device = True, torch.device("cuda", 1)

        def to(self, device, non_blocking):
            assert (device, non_blocking) == ("cpu", True)
            return torch.tensor([3, 5])

    class Event:
        def record(self, stream):
            seen.append(f"copied on the {stream}")

        def synchronize(self):
            seen.append("waited for")

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: f"stream of {device}")
    arrived = _on_their_way(Tokens())
    assert seen == ["copied on the stream of cuda:1"]
    assert arrived() == [3, 5]
    assert seen[1:] == ["waited for"]


def test_tokens_are_told_as_they_come(tiny_llama, alone):
    generator = Generator(tiny_llama, num_slots=64)
    reported = []
    generation = generator.submit(SYSTEM, 3, on_token=lambda *args: reported.append(args))
    generator.run()
    assert reported == [(generation, token) for token in alone(SYSTEM, 3)]


# ---- planned ahead ----


class Watched:
    """What a generator plans and draws, in order."""

    def __init__(self, generator):
        self.generator, self.said = generator, []
        self._plan = generator._paged.backend.plan
        generator._paged.backend.plan = self.plan

    def plan(self, batch, **how):
        self.said.append(f"plan {sum(map(len, batch.rows))}")
        self._plan(batch, **how)

    def drew(self, generation, token):
        self.said.append(f"token {len(generation.tokens)}")


def test_a_step_is_planned_while_the_one_before_is_computed(tiny_llama, alone):
    generator = Generator(tiny_llama, num_slots=100)
    watched = Watched(generator)
    generation = generator.submit(SYSTEM, 4, on_token=watched.drew)
    generator.run()
    assert generation.tokens == alone(SYSTEM, 4)
    # The prefill, then decode: the third step before the second's token, nothing after the last's.
    assert watched.said == [
        "plan 12", "token 1", "plan 13", "plan 14", "token 2", "plan 15", "token 3", "token 4",
    ]  # fmt: skip


def test_what_is_planned_in_vain_is_planned_again(tiny_llama, alone):
    """One of three ends by its token, another is cancelled, a fourth comes."""
    generator = Generator(tiny_llama, num_slots=400, max_batch=4)
    watched = Watched(generator)
    end = alone(PROMPTS[0], 4)[-1]
    first = generator.submit(PROMPTS[0], 20, eos_ids={end})
    others = [generator.submit(prompt, 20) for prompt in PROMPTS[1:3]]
    while not first.is_done:
        generator.step()
    plans = len(watched.said)
    others[0].cancel()
    late = generator.submit(PROMPTS[3], 20)
    run_checked(generator)
    assert first.tokens == alone(PROMPTS[0], 20)[: len(first.tokens)]
    assert others[1].tokens == alone(PROMPTS[2], 20)
    assert late.tokens == alone(PROMPTS[3], 20)
    assert len(watched.said) > plans


def test_what_is_reserved_ahead_goes_to_others_when_there_is_no_more(tiny_llama, alone):
    """Slots for one token each are left, and no more: both go on, one after the other."""
    prompts = [[1, 2, 3, 4], [5, 6, 7, 8]]
    generator = Generator(tiny_llama, num_slots=11, max_batch=2)
    generations = [generator.submit(prompt, 7) for prompt in prompts]
    run_checked(generator)
    assert [each.tokens for each in generations] == [alone(prompt, 7) for prompt in prompts]


def test_no_two_generations_ever_have_rows_of_one_version(tiny_llama):
    """One that ended leaves its address to the next, and a device relies on versions."""
    generator = Generator(tiny_llama, num_slots=100, reuse=False)
    names = []
    for _ in range(20):
        generation = generator.submit(SYSTEM, 3)
        generator.step()
        names.append(generation.request.row_version)
        generator.run()
        del generation
    assert len(set(names)) == 20


def test_a_row_that_published_is_not_what_it_was_before_even_after_a_reset(tiny_llama, alone):
    """A device that relied on the old version would read slots that others have now."""
    generator = Generator(tiny_llama, num_slots=100)
    planned = []
    plan = generator._paged.backend.plan

    def noted(batch):
        planned.append(
            dict(zip(batch.row_versions, [row.tolist() for row in batch.rows], strict=True))
        )
        plan(batch)

    generator._paged.backend.plan = noted
    prompts = [[*SYSTEM[:4], *range(first, first + 10)] for first in (20, 40)]
    generations = [generator.submit(prompt, 4) for prompt in prompts]
    generator.step()
    generator.cache.reset(force=True)
    run_checked(generator)
    for before, after in pairwise(planned):
        for name in before.keys() & after.keys():
            assert after[name][: len(before[name])] == before[name]
    assert [each.tokens for each in generations] == [alone(prompt, 4) for prompt in prompts]


def test_what_never_fits_is_refused_at_once(tiny_llama):
    generator = Generator(tiny_llama, num_slots=32)
    with pytest.raises(PromptTooLongError, match=r"at most 32 tokens, .*; got 33"):
        generator.submit([1] * 33)
    roomy = Generator(tiny_llama, num_slots=300)
    with pytest.raises(PromptTooLongError, match=r"at most 256 tokens, .*; got 257"):
        roomy.submit([1] * 257)
    assert_nothing_is_held(generator)


def test_a_generation_ends_where_the_pool_ends(tiny_llama, alone):
    generator = Generator(tiny_llama, num_slots=16)
    generation = generator.submit(SYSTEM, 100)
    whole = generator.submit([1] * 16, 100)
    run_checked(generator)
    # 16 slots hold the prompt and four tokens; a fifth is drawn and needs none.
    assert generation.tokens == alone(SYSTEM, 5)
    assert generation.finish_reason == "length"
    assert whole.tokens == alone([1] * 16, 1)


@pytest.mark.parametrize(
    ("prompt", "options", "error", "named"),
    [
        ([], {}, InvalidTokensError, "prompt_ids must have at least one"),
        ([1, 97], {}, InvalidTokensError, r"prompt_ids must be 0 to 96 .*; got 97 at 1"),
        ([1, -1], {}, InvalidTokensError, "-1"),
        ([1], {"max_new_tokens": 0}, InvalidArgumentError, "max_new_tokens.* 0"),
    ],
)
def test_bad_arguments_are_refused_by_name(tiny_llama, prompt, options, error, named):
    generator = Generator(tiny_llama, num_slots=16)
    with pytest.raises(error, match=named):
        generator.submit(prompt, **options)
    assert not generator.step()


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"num_slots": 8, "max_batch": 0},
        {"num_slots": 8, "chunk_size": 0},
        {"num_slots": 8, "backend": "no such"},
        {"num_slots": 8, "kv_dtype": "int8"},
    ],
)
def test_a_generator_checks_its_options(tiny_llama, options):
    with pytest.raises(InvalidArgumentError):
        Generator(tiny_llama, **options)


def test_a_generator_takes_a_cache_or_makes_one_but_not_both(tiny_llama):
    with pytest.raises(InvalidArgumentError, match="num_slots or cache must be given; got both"):
        Generator(tiny_llama, num_slots=8, cache=PrefixCache(8))
    with pytest.raises(InvalidArgumentError, match="num_slots or cache must be given; got neither"):
        Generator(tiny_llama)


def test_a_stale_namespace_fails_its_generation_only(tiny_llama, alone):
    generator = Generator(tiny_llama, num_slots=64)
    generator.cache.set_weight_version(2)
    stale = generator.submit(SYSTEM, 2, namespace=Namespace(weight_version=1))
    good = generator.submit(SYSTEM, 2)
    run_checked(generator)
    assert stale.finish_reason == "failed"
    assert isinstance(stale.error, StaleWeightsError)
    assert good.tokens == alone(SYSTEM, 2)


def test_those_at_the_head_of_the_line_who_left_it_hold_up_no_other(tiny_llama, alone):
    """As many as run at once: two were cancelled, one names weights that are gone."""
    generator = Generator(tiny_llama, num_slots=64, max_batch=1)
    generator.cache.set_weight_version(2)
    gone = [generator.submit(SYSTEM, 2) for _ in range(2)]
    generator.submit(SYSTEM, 2, namespace=Namespace(weight_version=1))
    good = generator.submit(SYSTEM, 2)
    for each in gone:
        each.cancel()
    run_checked(generator)
    assert good.tokens == alone(SYSTEM, 2)


@pytest.mark.parametrize("steps", [0, 1, 3, 6])
def test_a_cancelled_generation_gives_everything_back(tiny_llama, alone, steps):
    generator = Generator(tiny_llama, num_slots=64, chunk_size=5)
    cancelled, kept = generator.submit([8, *SYSTEM], 20), generator.submit(SYSTEM, 10)
    for _ in range(steps):
        generator.step()
    cancelled.cancel()
    cancelled.cancel()
    assert repr(cancelled).startswith("<Generation cancelled prompt=13 generated=")
    assert cancelled.finish_reason == "cancelled"
    assert generator.cache.check_integrity() == []
    count = len(cancelled.tokens)
    run_checked(generator)
    assert len(cancelled.tokens) == count
    assert kept.tokens == alone(SYSTEM, 10)
    kept.cancel()
    assert kept.finish_reason == "length"


def test_a_retracted_generation_can_be_cancelled(tiny_llama, alone):
    generator = Generator(tiny_llama, num_slots=28, max_batch=2)
    old, young = generator.submit(SYSTEM, 14), generator.submit([1, *SYSTEM], 10)
    while not young.numbers.retractions:
        generator.step()
    assert generator.num_waiting == 1
    young.cancel()
    assert generator.num_waiting == 0
    run_checked(generator)
    assert old.tokens == alone(SYSTEM, 14)


def test_cancel_and_submit_from_a_callback(tiny_llama, alone):
    generator = Generator(tiny_llama, num_slots=64)
    more = []

    def enough(generation, token):
        if len(generation.tokens) == 2:
            generation.cancel()
            more.append(generator.submit(SYSTEM, 3))

    generation = generator.submit(SYSTEM, 9, on_token=enough)
    run_checked(generator)
    assert generation.tokens == alone(SYSTEM, 2)
    assert more[0].tokens == alone(SYSTEM, 3)


def test_a_callback_can_cancel_another_generation(tiny_llama):
    generator = Generator(tiny_llama, num_slots=64)
    reported = []
    generator.submit([1, 2], 4, on_token=lambda *_: other.cancel())
    other = generator.submit([3, 4], 4, on_token=lambda *_: reported.append(1))
    run_checked(generator)
    assert other.finish_reason == "cancelled"
    assert reported == []


@pytest.mark.parametrize("layer", [0, 1])
def test_a_cancel_from_within_a_step_comes_after_it(tiny_llama, alone, layer):
    """As by the handler of a signal, which interrupts the thread that steps."""
    generator = Generator(tiny_llama, num_slots=64)
    interrupted, other = generator.submit(SYSTEM, 9), generator.submit(PROMPTS[1], 4)
    generator.step()
    hook = tiny_llama.model.layers[layer].register_forward_pre_hook(lambda *_: interrupted.cancel())
    try:
        generator.step()
    finally:
        hook.remove()
    assert interrupted.finish_reason == "cancelled"
    run_checked(generator)
    assert interrupted.tokens == alone(SYSTEM, len(interrupted.tokens))
    assert other.tokens == alone(PROMPTS[1], 4)


def test_who_was_retracted_is_first_in_line(tiny_llama):
    reported = []
    generator = Generator(tiny_llama, num_slots=20, max_batch=2)
    generator.submit(SYSTEM, 4)
    young, later = (
        generator.submit(prompt, 12, on_token=lambda *args: reported.append(args[0]))
        for prompt in ([1, 2, 3], [7, 8])
    )
    while not young.numbers.retractions:
        generator.step()
    reported.clear()
    run_checked(generator)
    assert (reported[0], reported[-1]) == (young, later)


def test_threads_submit_and_cancel_while_it_steps(tiny_llama, alone):
    generator = Generator(tiny_llama, num_slots=48, chunk_size=4, max_batch=4)
    generations = []

    def client(seed):
        rng = random.Random(seed)
        for _ in range(15):
            generation = generator.submit(rng.choice(PROMPTS), 5)
            generations.append(generation)
            if rng.random() < 0.4:
                generation.cancel()

    threads = [threading.Thread(target=client, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        generator.step()
    run_checked(generator)
    for generation in generations:
        assert generation.is_done
        assert generation.tokens == alone(generation.prompt.tolist(), len(generation.tokens))


def test_two_generators_may_run_one_model_in_threads_of_their_own(tiny_llama, alone):
    """Each calls the model with its own attention, and puts back what was there."""
    cache, attention = PrefixCache(400), tiny_llama.config._attn_implementation
    generators = [Generator(tiny_llama, cache=cache) for _ in range(2)]
    generations = [each.submit(prompt, 6) for each in generators for prompt in PROMPTS]
    expected = [alone(prompt, 6) for prompt in PROMPTS] * 2
    switching = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        run_threads(*(each.run for each in generators))
    finally:
        sys.setswitchinterval(switching)
    assert tiny_llama.config._attn_implementation == attention
    assert [each.tokens for each in generations] == expected
    assert_nothing_is_held(generators[0])


class Broken(Exception):
    """What the tests let models and callbacks raise."""


@pytest.mark.parametrize("at_step", [1, 2, 4, 6])
def test_a_model_that_raises_leaves_nothing_behind(tiny_llama, alone, at_step):
    generator = Generator(tiny_llama, num_slots=48, chunk_size=5, max_batch=3)
    doomed = [generator.submit(prompt, 6) for prompt in PROMPTS]
    for _ in range(at_step - 1):
        generator.step()

    def breaks(*_):
        raise Broken

    hook = tiny_llama.model.layers[1].register_forward_pre_hook(breaks)
    try:
        with pytest.raises(Broken):
            generator.step()
    finally:
        hook.remove()
    assert generator.cache.check_integrity() == []
    assert generator.num_running == 0
    failed = [each for each in doomed if each.finish_reason == "failed"]
    assert failed
    assert all(isinstance(each.error, Broken) for each in failed)
    run_checked(generator)
    for prompt, generation in zip(PROMPTS, doomed, strict=True):
        assert generation.tokens == alone(prompt, len(generation.tokens))
        assert (len(generation.tokens) == 6) != (generation in failed)


@pytest.mark.parametrize("namespace", ["tenant", None])
def test_what_is_no_namespace_is_refused_before_it_is_in_line(tiny_llama, alone, namespace):
    generator = Generator(tiny_llama, num_slots=64)
    with pytest.raises(InvalidNamespaceError):
        generator.submit([1, 2, 3], 4, namespace=namespace)
    good = generator.submit([4, 5, 6], 4)
    run_checked(generator)
    assert good.tokens == alone([4, 5, 6], 4)


def test_a_callback_that_raises_fails_its_generation_only(tiny_llama, alone):
    generator = Generator(tiny_llama, num_slots=64, max_batch=3)
    reported = []

    def breaks(generation, token):
        raise Broken

    failed = generator.submit(PROMPTS[0], 4, on_token=breaks)
    good = generator.submit(PROMPTS[1], 4, on_token=lambda _, token: reported.append(token))
    with pytest.raises(Broken):
        generator.run()
    assert failed.finish_reason == "failed"
    assert isinstance(failed.error, Broken)
    run_checked(generator)
    assert good.tokens == reported == alone(PROMPTS[1], 4)


def test_room_that_others_hold_is_waited_for(tiny_llama, alone):
    cache = PrefixCache(24)
    other = cache.admit(range(50, 66))
    generator = Generator(tiny_llama, cache=cache)
    generation = generator.submit(SYSTEM, 4)
    assert not generator.step()
    cache.abort(other)
    run_checked(generator)
    assert generation.tokens == alone(SYSTEM, 4)


def test_a_lone_generation_that_others_leave_no_slot_waits_too(tiny_llama, alone):
    cache = PrefixCache(24)
    generator = Generator(tiny_llama, cache=cache)
    generation = generator.submit(SYSTEM, 8)
    generator.step()
    other = cache.admit(range(50, 62))
    generator.run()
    assert generation.numbers.retractions == 1
    assert not generation.is_done
    cache.abort(other)
    run_checked(generator)
    assert generation.tokens == alone(SYSTEM, 8)


def test_a_cache_that_is_reset_under_it_changes_no_token(tiny_llama, alone):
    generator = Generator(tiny_llama, num_slots=48, chunk_size=5, max_batch=3)
    generations = [generator.submit(prompt, 6) for prompt in PROMPTS]
    while generator.step():
        generator.cache.reset(force=True)
        assert generator.cache.check_integrity() == []
    assert_nothing_is_held(generator)
    assert [each.tokens for each in generations] == [alone(prompt, 6) for prompt in PROMPTS]


def test_a_cache_brings_its_own_pool_or_gets_one(tiny_llama):
    pool = pool_for(tiny_llama, 32)
    assert Generator(tiny_llama, cache=PrefixCache(32, kv=pool)).pool is pool


def test_a_pool_of_another_dtype_than_is_asked_for_is_refused(tiny_llama):
    cache = PrefixCache(32, kv=pool_for(tiny_llama, 32))
    assert Generator(tiny_llama, cache=cache, kv_dtype="float32").pool is cache.kv
    with pytest.raises(InvalidArgumentError, match=r"must be torch\.float32.*; got float16"):
        Generator(tiny_llama, cache=cache, kv_dtype="float16")


def test_a_pool_of_another_size_than_the_cache_is_refused(tiny_llama):
    pool = pool_for(tiny_llama, 8)
    with pytest.raises(InvalidArgumentError, match="64 slots in pages of 1; got 8"):
        Generator(tiny_llama, cache=PrefixCache(64, kv=pool))
    bare = PrefixCache(32)
    assert Generator(tiny_llama, cache=bare).pool is bare.kv


def test_keys_and_values_may_be_kept_in_fewer_bits(tiny_llama):
    generator = Generator(tiny_llama, num_slots=64, kv_dtype="bfloat16")
    generation = generator.submit(SYSTEM, 4)
    run_checked(generator)
    assert generator.pool.dtype == torch.bfloat16
    assert len(generation.tokens) == 4
