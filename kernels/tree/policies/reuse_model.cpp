#include "reuse_model.hpp"

#include <algorithm>

namespace radixkv {

void ReuseModel::clear() noexcept {
    now_ = uses_ = learnt_ = stale_at_ = 0;
    cells_.clear();
    cells_.push_back({0, {}});
    reused_ = given_up_ = worth_ = {};
}

void ReuseModel::begin(uint64_t now) {
    assert(now > now_);
    ++uses_;
    now_ = now;
    cells_.push_back({now, {}});
    if (cells_.size() > MOST_CELLS) join();
}

void ReuseModel::join() {
    size_t last = 0;
    for (size_t i = 1; i < cells_.size(); ++i) {
        uint64_t end = this->end(i);
        if (PARTS * (end - cells_[last].first) > now_ + 1 - end) {
            cells_[++last] = cells_[i];
            continue;
        }
        for (uint32_t kind = 0; kind < KINDS; ++kind)
            cells_[last].waiting[kind] += cells_[i].waiting[kind];
    }
    cells_.resize(last + 1);
    last_asked_ = 0;
    assert(cells_.size() <= MOST_CELLS);
}

// Mostly the cell that was asked for last.
ReuseModel::ByKind& ReuseModel::waiting(uint64_t used) {
    auto is_before = [](uint64_t time, const Cell& cell) { return time < cell.first; };
    bool is_it =
        last_asked_ < cells_.size() && used >= cells_[last_asked_].first && used < end(last_asked_);
    if (!is_it) {
        auto after = std::upper_bound(cells_.begin(), cells_.end(), used, is_before);
        last_asked_ = static_cast<size_t>(after - cells_.begin()) - 1;
    }
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
    for (size_t i = 0; i < cells_.size(); ++i) {
        uint64_t age = now_ + 1 - end(i);
        if (age == 0) continue;
        uint32_t group = age_group(age);
        for (uint32_t kind = 0; kind < KINDS; ++kind) risk[kind][group] += cells_[i].waiting[kind];
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
    if (uses_ < stale_at_) return;
    stale_at_ = uses_ + 1 + std::min<uint64_t>(uses_ / 16, 31);
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

// From the chances to be used in each group of ages: the best rate of uses a step that waiting can
// reach, if one may give up after any group. A stretch goes on while what comes next is better.
void ReuseModel::learn(const ByAge& chance, ByAge& worth) {
    struct Stretch {
        uint64_t gain, time, left, rate;
    };
    std::array<Stretch, AGES> ahead;
    uint32_t count = 0;
    for (uint32_t group = AGES; group-- > 0;) {
        uint64_t gain = chance[group], time = ages_in(group) * (ONE - gain / 2);
        Stretch own{gain, time, ONE - gain, (gain << 36) / time};
        for (; count > 0 && ahead[count - 1].rate > own.rate; --count) {
            const Stretch& next = ahead[count - 1];
            own.gain += own.left * next.gain / ONE;
            own.time += own.left * next.time / ONE;
            own.left = own.left * next.left / ONE;
            own.rate = (own.gain << 36) / own.time;
        }
        ahead[count++] = own;
        worth[group] = own.rate;
    }
}

void ReuseModel::save(std::vector<uint64_t>& out) const {
    out.insert(out.end(), {now_, uses_, learnt_, stale_at_, cells_.size()});
    for (const Cell& cell : cells_) {
        out.push_back(cell.first);
        out.insert(out.end(), cell.waiting.begin(), cell.waiting.end());
    }
    for (const auto* table : {&reused_, &given_up_, &worth_}) {
        for (const ByAge& row : *table) out.insert(out.end(), row.begin(), row.end());
    }
}

void ReuseModel::load(SavedState& in) {
    clear();
    now_ = in.next();
    uses_ = in.next();
    learnt_ = in.next();
    stale_at_ = in.next();
    cells_.resize(in.next(MOST_CELLS + 1));
    for (Cell& cell : cells_) {
        cell.first = in.next();
        for (uint64_t& count : cell.waiting) count = in.next();
    }
    if (cells_.empty() || cells_[0].first != 0) throw std::out_of_range("no first cell");
    for (auto* table : {&reused_, &given_up_, &worth_}) {
        for (ByAge& row : *table) {
            for (uint64_t& count : row) count = in.next();
        }
    }
}

}  // namespace radixkv
