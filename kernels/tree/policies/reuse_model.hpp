// When what is cached will be used again, learnt from when it was. radixkv/tree/policies/ has the
// same in fewer words (reuse_model.py), and why (adaptive.py).
#pragma once

#include <array>
#include <bit>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <vector>

namespace radixkv {

// A state that was saved, number by number; std::out_of_range where it was never saved.
class SavedState {
  public:
    explicit SavedState(const std::vector<uint64_t>& numbers) : numbers_(numbers) {}

    bool is_read() const { return at_ == numbers_.size(); }
    uint64_t next() { return numbers_.at(at_++); }
    uint64_t next(uint64_t below) {
        if (uint64_t number = next(); number < below) return number;
        throw std::out_of_range("a saved number is too large");
    }

  private:
    const std::vector<uint64_t>& numbers_;
    size_t at_ = 0;
};

// Tokens wait from one use to the next. This counts for each kind how many waited how long; ages
// and ticks are numbers of requests. Integers throughout, so that both cores agree to the last bit.
class ReuseModel {
  public:
    static constexpr uint32_t KINDS = 8;
    static constexpr uint32_t PARTS = 4;
    static constexpr uint32_t AGES = 16 * PARTS;

    ReuseModel() {
        cells_.reserve(MAX_CELLS + 1);
        clear();
    }

    uint64_t tick() const { return tick_; }
    void next_tick();

    // `count` tokens wait since tick `used`; or they do so no longer.
    void add(uint64_t used, uint32_t kind, uint64_t count) { waiting(used)[kind] += count; }
    void remove(uint64_t used, uint32_t kind, uint64_t count) {
        uint64_t& waiting_now = waiting(used)[kind];
        assert(count <= waiting_now);
        waiting_now -= count;
    }

    // They were used again, `age` ticks later.
    void reuse(uint64_t used, uint32_t kind, uint64_t count, uint64_t age) {
        remove(used, kind, count);
        reused_[kind][age_group(age)] += count;
        learnt_ += count;
    }

    // They are not watched any more.
    void give_up(uint64_t used, uint32_t kind, uint64_t count) {
        remove(used, kind, count);
        given_up_[kind][age_group(tick_ - used)] += count;
        learnt_ += count;
    }

    // Brings `worth` up to date, for a cache of `size` tokens.
    void refresh(uint64_t size);

    // What keeping a token is expected to bring for each tick that it stays; more for what is deep
    // and costs more to compute again.
    uint64_t worth(uint32_t kind, uint64_t used, uint32_t depth) const {
        return worth_[kind][age_group(tick_ + 1 - used)] * (DEPTH_OF_DOUBLE_COST + depth);
    }

    // All tokens that wait; for checks.
    uint64_t waiting_tokens() const;

    // The state as numbers, and back.
    void save(std::vector<uint64_t>& out) const;
    void load(SavedState& in);

    void clear() noexcept;

  private:
    using ByAge = std::array<uint64_t, AGES>;
    using ByKind = std::array<uint64_t, KINDS>;

    // An 8B model's attention to so many tokens costs as much as the rest of it does for one.
    static constexpr uint64_t DEPTH_OF_DOUBLE_COST = 32768;
    static constexpr uint64_t ONE = 1 << 20;
    static constexpr size_t MAX_SAME_SPAN = PARTS;
    static constexpr size_t MAX_CELLS = (MAX_SAME_SPAN + 1) * 64;

    // The tokens that wait since some ticks. Old ticks share a cell: its span is at most a quarter
    // of its age.
    struct Cell {
        uint64_t first;
        uint64_t span;
        ByKind waiting;
    };

    ByKind& waiting(uint64_t used);
    void forget_half();
    std::array<ByAge, KINDS> at_risk() const;
    static void learn(const ByAge& chance, ByAge& worth);

    // Every age up to PARTS is a group of its own; then there are PARTS for each doubling.
    static uint32_t age_group(uint64_t age) {
        if (age < PARTS) return age ? static_cast<uint32_t>(age) - 1 : 0;
        uint32_t shift = static_cast<uint32_t>(std::bit_width(age / PARTS)) - 1;
        uint64_t group = PARTS * shift + (age >> shift) - 1;
        return group < AGES ? static_cast<uint32_t>(group) : AGES - 1;
    }
    static uint64_t first_age(uint32_t group) {
        if (group < PARTS) return group + 1;
        uint32_t beyond = group + 1 - PARTS;
        return uint64_t{PARTS + beyond % PARTS} << beyond / PARTS;
    }
    static uint64_t ages_in(uint32_t group) {
        return group < PARTS ? 1 : uint64_t{1} << (group + 1 - PARTS) / PARTS;
    }

    uint64_t tick_, learnt_, stale_at_;
    std::vector<Cell> cells_;
    size_t last_asked_ = 0;  // a cell
    std::array<ByAge, KINDS> reused_, given_up_, worth_;
};

}  // namespace radixkv
