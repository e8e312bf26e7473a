// When what is cached will be used again, learnt from when it was. radixkv/tree/policies/ has the
// same in fewer words (reuse_model.py), and why (adaptive.py).
#pragma once

#include <array>
#include <bit>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "saved_state.hpp"

namespace radixkv {

// Tokens wait from one use to the next. This counts for each kind how many waited how long. Times
// are milliseconds, ages are counted in steps of `STEP`. Integers throughout, so that both cores
// agree to the last bit.
class ReuseModel {
  public:
    static constexpr uint32_t KINDS = 18;
    static constexpr uint32_t PARTS = 4;
    static constexpr uint32_t AGES = 22 * PARTS;
    static constexpr uint64_t STEP = 64;

    ReuseModel() {
        cells_.reserve(MOST_CELLS + 1);
        clear();
    }

    // The time of the last request, and how many requests there were.
    uint64_t now() const { return now_; }
    uint64_t uses() const { return uses_; }

    // A request begins, at a time later than all before.
    void begin(uint64_t now);

    // `count` tokens wait since the time `used`; or they do so no longer.
    void add(uint64_t used, uint32_t kind, uint64_t count) { waiting(used)[kind] += count; }
    void remove(uint64_t used, uint32_t kind, uint64_t count) {
        uint64_t& waiting_now = waiting(used)[kind];
        assert(count <= waiting_now);
        waiting_now -= count;
    }

    // They were used again, `age` later.
    void reuse(uint64_t used, uint32_t kind, uint64_t count, uint64_t age) {
        remove(used, kind, count);
        reused_[kind][age_group(age)] += count;
        learnt_ += count;
    }

    // They are not watched any more.
    void give_up(uint64_t used, uint32_t kind, uint64_t count) {
        remove(used, kind, count);
        given_up_[kind][age_group(now_ - used)] += count;
        learnt_ += count;
    }

    // Brings `worth` up to date, for a cache of `size` tokens.
    void refresh(uint64_t size);

    // What keeping a token is expected to bring for each step that it stays.
    uint64_t worth(uint32_t kind, uint64_t used) const {
        return worth_[kind][age_group(now_ + STEP - used)];
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

    static constexpr uint64_t ONE = 1 << 20;
    static constexpr size_t MOST_CELLS = 512;

    // The tokens that wait since some time. Old times share a cell: it spans at most a quarter of
    // its age.
    struct Cell {
        uint64_t first;
        ByKind waiting;
    };

    void join();
    uint64_t end(size_t cell) const {
        return cell + 1 < cells_.size() ? cells_[cell + 1].first : now_ + 1;
    }

    ByKind& waiting(uint64_t used);
    void forget_half();
    std::array<ByAge, KINDS> at_risk() const;
    static void learn(const ByAge& chance, ByAge& worth);

    // Every age up to PARTS steps is a group of its own; then there are PARTS for each doubling.
    static uint32_t age_group(uint64_t age) {
        age /= STEP;
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

    uint64_t now_, uses_, learnt_, stale_at_;
    std::vector<Cell> cells_;
    size_t last_asked_ = 0;  // a cell
    std::array<ByAge, KINDS> reused_, given_up_, worth_;
};

}  // namespace radixkv
