// Which tickets are free.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

namespace radixkv {

using std::size_t;

// Hands out the numbers 0 to `size - 1`, in a row where one is free: the search goes on where the
// last one ended, and begins again at 0. Nothing here allocates once it is made.
class TicketRing {
  public:
    explicit TicketRing(uint32_t size) : free_size_(size), is_held_(size) {}

    uint32_t size() const { return static_cast<uint32_t>(is_held_.size()); }
    uint32_t free_size() const { return free_size_; }

    // The next `n` tickets, at most `free_size`. They are free until `take`.
    void peek(uint32_t n, int32_t* out) const noexcept {
        assert(n <= free_size_);
        uint32_t first = find_row(next_, n);
        if (first == NO_ROW) first = find_row(0, n);
        if (first != NO_ROW) return std::iota(out, out + n, static_cast<int32_t>(first));
        for (uint32_t at = next_; n > 0; ++at) {
            if (at == size()) at = 0;
            if (is_held_[at]) continue;
            *out++ = static_cast<int32_t>(at);
            --n;
        }
    }

    // Makes those held that `peek` showed.
    void take(const int32_t* tickets, uint32_t n) noexcept {
        for (uint32_t i = 0; i < n; ++i) {
            assert(!is_held_[tickets[i]]);
            is_held_[tickets[i]] = true;
        }
        free_size_ -= n;
        if (n) next_ = static_cast<uint32_t>(tickets[n - 1]) + 1;
    }

    // Takes them back. Where one is not held or comes twice nothing happens, and it is the answer;
    // else `n`.
    template <class Int>
    size_t free(const Int* tickets, size_t n) noexcept {
        for (size_t i = 0; i < n; ++i) {
            if (is_held(tickets[i])) {
                is_held_[static_cast<size_t>(tickets[i])] = false;
                continue;
            }
            for (size_t j = 0; j < i; ++j) is_held_[static_cast<size_t>(tickets[j])] = true;
            return i;
        }
        free_size_ += static_cast<uint32_t>(n);
        return n;
    }

    bool is_held(int64_t ticket) const {
        return ticket >= 0 && ticket < size() && is_held_[static_cast<size_t>(ticket)];
    }

  private:
    static constexpr uint32_t NO_ROW = UINT32_MAX;

    // The first of `n` free tickets in a row, from `from` on. Looked at from their end, because
    // one that is held there rules out all rows that begin before it.
    uint32_t find_row(uint32_t from, uint32_t n) const noexcept {
        while (n <= size() - from) {
            uint32_t end = from + n;
            while (end > from && !is_held_[end - 1]) --end;
            if (end == from) return from;
            from = end;
        }
        return NO_ROW;
    }

    uint32_t free_size_;
    uint32_t next_ = 0;  // at most `size`
    std::vector<uint8_t> is_held_;
};

}  // namespace radixkv
