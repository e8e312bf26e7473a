#include "reuse_model.hpp"

#include <algorithm>

namespace radixkv {

void ReuseModel::clear() noexcept {
    tick_ = learnt_ = stale_at_ = 0;
    cells_.clear();
    cells_.push_back({0, 1, {}});
    reused_ = given_up_ = worth_ = {};
}

void ReuseModel::next_tick() {
    cells_.push_back({++tick_, 1, {}});
    size_t end = cells_.size();
    for (uint64_t span = 1;; span *= 2) {
        size_t begin = end;
        while (begin > 0 && cells_[begin - 1].span == span) --begin;
        if (end - begin <= MAX_SAME_SPAN) return;
        Cell &older = cells_[begin], &newer = cells_[begin + 1];
        older.span *= 2;
        for (uint32_t kind = 0; kind < KINDS; ++kind) older.waiting[kind] += newer.waiting[kind];
        cells_.erase(cells_.begin() + static_cast<ptrdiff_t>(begin) + 1);
        end = begin + 1;
    }
}

// Mostly the cell that was asked for last.
ReuseModel::ByKind& ReuseModel::waiting(uint64_t used) {
    auto is_before = [](uint64_t tick, const Cell& cell) { return tick < cell.first; };
    if (last_asked_ >= cells_.size() ||
        used - cells_[last_asked_].first >= cells_[last_asked_].span) {
        auto after = std::upper_bound(cells_.begin(), cells_.end(), used, is_before);
        last_asked_ = static_cast<size_t>(after - cells_.begin()) - 1;
    }
    assert(used - cells_[last_asked_].first < cells_[last_asked_].span);
    return cells_[last_asked_].waiting;
}

uint64_t ReuseModel::waiting_tokens() const {
    uint64_t sum = 0;
    for (const Cell& cell : cells_) {
        for (uint64_t count : cell.waiting) sum += count;
    }
    return sum;
}

void ReuseModel::forget_half() {
    learnt_ /= 2;
    for (uint32_t kind = 0; kind < KINDS; ++kind) {
        for (uint64_t& count : reused_[kind]) count /= 2;
        for (uint64_t& count : given_up_[kind]) count /= 2;
    }
}

// How many tokens came to each age without being used before it.
std::array<ReuseModel::ByAge, ReuseModel::KINDS> ReuseModel::at_risk() const {
    std::array<ByAge, KINDS> risk{};
    for (const Cell& cell : cells_) {
        uint64_t age = tick_ - (cell.first + cell.span - 1);
        if (age == 0) continue;
        uint32_t group = age_group(age);
        for (uint32_t kind = 0; kind < KINDS; ++kind) risk[kind][group] += cell.waiting[kind];
    }
    for (uint32_t kind = 0; kind < KINDS; ++kind) {
        uint64_t later = 0;
        for (uint32_t group = AGES; group-- > 0;) {
            later += risk[kind][group] + reused_[kind][group] + given_up_[kind][group];
            risk[kind][group] = later;
        }
    }
    return risk;
}

void ReuseModel::refresh(uint64_t size) {
    if (tick_ < stale_at_) return;
    stale_at_ = tick_ + 1 + std::min<uint64_t>(tick_ / 128, 31);
    if (learnt_ > 64 * size) forget_half();
    std::array<ByAge, KINDS> risk = at_risk();
    uint64_t doubt = size / 40 + 1;
    ByAge common;
    for (uint32_t group = 0; group < AGES; ++group) {
        uint64_t ages = ages_in(group), reused = 0, all = 0;
        for (uint32_t kind = 0; kind < KINDS; ++kind) {
            reused += reused_[kind][group];
            all += risk[kind][group];
        }
        uint64_t guess = ages * ONE / (10 * (first_age(group) + 8) + 5 * ages);
        common[group] = (reused * ONE + guess * doubt) / (all + doubt);
    }
    ByAge of_unknown;
    learn(common, of_unknown);
    for (uint32_t kind = 0; kind < KINDS; ++kind) {
        worth_[kind] = of_unknown;
        if (risk[kind][0] == 0) continue;
        ByAge chance;
        for (uint32_t group = 0; group < AGES; ++group) {
            chance[group] =
                (reused_[kind][group] * ONE + common[group] * doubt) / (risk[kind][group] + doubt);
        }
        learn(chance, worth_[kind]);
    }
}

// From the chances to be used in each group of ages: the best rate of uses a tick that waiting can
// reach, if one may give up after any group. A stretch goes on while what comes next is better.
void ReuseModel::learn(const ByAge& chance, ByAge& worth) {
    struct Stretch {
        uint64_t gain, time, left, rate;
    };
    std::array<Stretch, AGES> ahead;
    uint32_t count = 0;
    for (uint32_t group = AGES; group-- > 0;) {
        uint64_t gain = chance[group], time = ages_in(group) * (ONE - gain / 2);
        Stretch own{gain, time, ONE - gain, (gain << 28) / time};
        for (; count > 0 && ahead[count - 1].rate > own.rate; --count) {
            const Stretch& next = ahead[count - 1];
            own.gain += own.left * next.gain / ONE;
            own.time += own.left * next.time / ONE;
            own.left = own.left * next.left / ONE;
            own.rate = (own.gain << 28) / own.time;
        }
        ahead[count++] = own;
        worth[group] = own.rate;
    }
}

void ReuseModel::save(std::vector<uint64_t>& out) const {
    out.insert(out.end(), {tick_, learnt_, stale_at_, cells_.size()});
    for (const Cell& cell : cells_) {
        out.insert(out.end(), {cell.first, cell.span});
        out.insert(out.end(), cell.waiting.begin(), cell.waiting.end());
    }
    for (const auto* table : {&reused_, &given_up_, &worth_}) {
        for (const ByAge& row : *table) out.insert(out.end(), row.begin(), row.end());
    }
}

void ReuseModel::load(SavedState& in) {
    clear();
    tick_ = in.next();
    learnt_ = in.next();
    stale_at_ = in.next();
    cells_.resize(in.next(MAX_CELLS));
    for (Cell& cell : cells_) {
        cell.first = in.next();
        cell.span = in.next();
        for (uint64_t& count : cell.waiting) count = in.next();
    }
    if (cells_.empty() || cells_[0].first != 0) throw std::out_of_range("no first tick");
    for (auto* table : {&reused_, &given_up_, &worth_}) {
        for (ByAge& row : *table) {
            for (uint64_t& count : row) count = in.next();
        }
    }
}

}  // namespace radixkv
