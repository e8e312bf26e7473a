// A run of tokens with their slots.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <numeric>
#include <type_traits>
#include <utility>

namespace radixkv {

using std::size_t;

// Starts to bring `n` items into the cache.
template <class Item>
void ask_for(const Item* items, size_t n) {
    auto* at = reinterpret_cast<const char*>(items);
    for (auto* end = at + n * sizeof(Item); at < end; at += 64) __builtin_prefetch(at);
}

// Calls visit(first, count) for as many of the slots as follow one another, then for the next of
// them, and so on as long as it answers true. Whether it always did.
template <class Visit>
bool visit_ranges(const int32_t* slots, size_t n, Visit& visit) {
    for (size_t from = 0, to; from < n; from = to) {
        for (to = from + 1; to < n && slots[to] == slots[to - 1] + 1;) ++to;
        if (!visit(slots[from], to - from)) return false;
    }
    return true;
}

// Slots that follow one another, as an allocator mostly gives them out, cost nothing: half of what
// a look-up would bring from memory is computed instead.
class TokenRun {
  public:
    uint32_t length = 0;

    TokenRun() = default;

    // Room for `length` tokens, which the caller writes, with these slots.
    TokenRun(const int32_t* slots, uint32_t length)
        : length(length), capacity_(length), first_slot_(first_of_range(slots, length)) {
        if (!length) return;
        block_ = new_block(is_range() ? length : 2 * size_t{length});
        if (!is_range()) std::memcpy(scattered(), slots, size_t{4} * length);
    }

    TokenRun(TokenRun&& other) noexcept { swap(other); }
    TokenRun& operator=(TokenRun&& other) noexcept {
        swap(other);
        return *this;
    }
    // Most that are destroyed were moved from: asking spares the call.
    ~TokenRun() {
        if (block_) std::free(block_);
    }

    int32_t* tokens() { return block_; }
    const int32_t* tokens() const { return block_; }

    // Tokens there is room for: more than `length` after a trim, at most twice as many.
    uint32_t capacity() const { return capacity_; }

    int32_t slot(uint32_t at) const {
        assert(at < length);
        return is_range() ? first_slot_ + static_cast<int32_t>(at) : scattered()[at];
    }

    // Int: int32_t or int64_t.
    template <class Int>
    void copy_slots(uint32_t from, uint32_t n, Int* out) const {
        assert(from <= length && n <= length - from);
        if (is_range()) {
            std::iota(out, out + n, Int{first_slot_} + static_cast<Int>(from));
        } else if (n) {
            std::copy_n(scattered() + from, n, out);
        }
    }

    // `visit_ranges` of the first `n` slots.
    template <class Visit>
    bool visit_slots(uint32_t n, Visit& visit) const {
        assert(n <= length);
        if (is_range()) return n == 0 || visit(first_slot_, size_t{n});
        return visit_ranges(scattered(), n, visit);
    }

    // `n` tokens from `from` on, in memory of their own.
    TokenRun cut(uint32_t from, uint32_t n) const {
        assert(from <= length && n <= length - from);
        TokenRun part;
        part.length = part.capacity_ = n;
        part.first_slot_ = is_range() ? first_slot_ + static_cast<int32_t>(from) : SCATTERED;
        part.block_ = new_block(is_range() ? n : 2 * size_t{n});
        std::memcpy(part.block_, block_ + from, size_t{4} * n);
        if (!is_range()) std::memcpy(part.scattered(), scattered() + from, size_t{4} * n);
        return part;
    }

    // Copied when half is gone: O(1) a trimmed token over time. Where there is no memory for a
    // copy, the block stays larger than it need be.
    void shorten(uint32_t keep) noexcept {
        assert(0 < keep && keep <= length);
        length = keep;
        if (capacity_ <= 2 * keep) return;
        try {
            *this = cut(0, keep);
        } catch (const std::bad_alloc&) {
            if (!is_range()) std::memmove(block_ + keep, scattered(), size_t{4} * keep);
            capacity_ = keep;
        }
    }

    // Of a long run the first, the processor then goes on by itself.
    void ask_for_all() const {
        uint32_t n = std::min(length, 512u);
        ask_for(tokens(), n);
        if (!is_range()) ask_for(scattered(), n);
    }

  private:
    static constexpr int32_t SCATTERED = -1;

    static int32_t first_of_range(const int32_t* slots, uint32_t n) {
        if (!n || slots[0] > INT32_MAX - static_cast<int32_t>(n)) return SCATTERED;
        int32_t differ = 0;
        for (uint32_t i = 0; i < n; ++i) differ |= slots[i] ^ (slots[0] + static_cast<int32_t>(i));
        return differ ? SCATTERED : slots[0];
    }

    static int32_t* new_block(size_t ints) {
        auto* block = static_cast<int32_t*>(std::malloc(4 * ints));
        if (!block) throw std::bad_alloc();
        return block;
    }

    bool is_range() const { return first_slot_ != SCATTERED; }
    int32_t* scattered() { return block_ + capacity_; }
    const int32_t* scattered() const { return block_ + capacity_; }

    void swap(TokenRun& other) noexcept {
        std::swap(length, other.length);
        std::swap(block_, other.block_);
        std::swap(capacity_, other.capacity_);
        std::swap(first_slot_, other.first_slot_);
    }

    uint32_t capacity_ = 0;
    int32_t* block_ = nullptr;        // `capacity` tokens, then as many slots if they are scattered
    int32_t first_slot_ = SCATTERED;  // of slots that follow one another
};

// A change takes over what it copied before: nothing can fail halfway.
static_assert(std::is_nothrow_move_constructible_v<TokenRun>);

}  // namespace radixkv
