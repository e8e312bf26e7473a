#include "lru_shadow.hpp"

#include <algorithm>
#include <cassert>

namespace radixkv {

void LruShadow::clear() noexcept {
    cells_.clear();
    cells_.push_back({0, 0, 0});
    lost_ = size_ = debt_ = due_ = expired_ = room_ = 0;
    credit_ = 0;
}

void LruShadow::begin(uint64_t now) {
    cells_.push_back({now, 0, 0});
    if (cells_.size() > MOST_CELLS) join();
}

// Of the first cell a part is lost: it stays by itself.
void LruShadow::join() {
    uint64_t all = 0;
    for (const Cell& cell : cells_) all += cell.tokens;
    uint64_t most = all / JOINED_CELLS;
    size_t last = 1;
    for (size_t i = 2; i < cells_.size(); ++i) {
        if (cells_[last].tokens + cells_[i].tokens > most) {
            cells_[++last] = cells_[i];
        } else {
            cells_[last].tokens += cells_[i].tokens;
            cells_[last].gone += cells_[i].gone;
        }
    }
    cells_.resize(last + 1);
    assert(cells_.size() <= MOST_CELLS);
}

// Mostly one of the last.
LruShadow::Cell& LruShadow::cell(uint64_t used) {
    assert(holds(used));
    auto is_before = [](uint64_t time, const Cell& cell) { return time < cell.first; };
    return *(std::upper_bound(cells_.begin(), cells_.end(), used, is_before) - 1);
}

uint64_t LruShadow::take(uint64_t used, uint64_t tokens) {
    if (!holds(used)) return 0;
    Cell& its = cell(used);
    uint64_t lost = &its == cells_.data() ? lost_ : 0;
    uint64_t held = std::min(tokens, its.tokens - lost), rest = std::min(tokens - held, lost);
    if (lost) lost_ -= rest;
    its.tokens -= held + rest;
    size_ -= held;
    return held;
}

void LruShadow::use_gone(uint64_t used, uint64_t tokens) {
    if (holds(used)) {
        uint64_t back = std::min(tokens, cell(used).gone);
        cell(used).gone -= back;
        debt_ -= back;
    }
    uint64_t due = take(used, tokens);
    due_ += due;
    credit_ -= PROMPT_TOKENS_A_TOKEN * static_cast<int64_t>(due);
}

void LruShadow::shrink(uint64_t size) {
    room_ = size;
    size_t begin = 0;
    while (size_ > size) {
        const Cell& first = cells_[begin];
        uint64_t over = size_ - size, there = first.tokens - lost_;
        if (there > over || begin + 1 == cells_.size()) {
            lost_ += std::min(over, there);
            size_ -= std::min(over, there);
            break;
        }
        size_ -= there;
        lost_ = 0;
        debt_ -= first.gone;
        expired_ += first.gone;
        ++begin;
    }
    cells_.erase(cells_.begin(), cells_.begin() + static_cast<ptrdiff_t>(begin));
    if (due_ + expired_ > 4 * size) {
        due_ /= 2;
        expired_ /= 2;
    }
    credit_ = std::min(credit_, MOST_CREDIT * static_cast<int64_t>(size) * PROMPT_TOKENS_A_TOKEN);
}

void LruShadow::save(std::vector<uint64_t>& out) const {
    out.insert(out.end(), {lost_, size_, debt_, due_, expired_, room_,
                           static_cast<uint64_t>(credit_), cells_.size()});
    for (const Cell& cell : cells_) out.insert(out.end(), {cell.first, cell.tokens, cell.gone});
}

void LruShadow::load(SavedState& in) {
    for (uint64_t* number : {&lost_, &size_, &debt_, &due_, &expired_, &room_}) *number = in.next();
    credit_ = static_cast<int64_t>(in.next());
    cells_.resize(in.next(MOST_CELLS + 1));
    for (Cell& cell : cells_) cell = {in.next(), in.next(), in.next()};
    if (cells_.empty()) throw std::out_of_range("no first cell");
}

}  // namespace radixkv
