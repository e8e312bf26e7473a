// Which slots are free.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <type_traits>
#include <vector>

namespace radixkv {

using std::size_t;

// Hands out slots `page_size` to `num_slots + page_size - 1` in whole pages, what was freed last
// first. Pages that were never handed out are only counted, so an unused pool costs a byte a page
// and no more.
class SlotAllocator {
  public:
    SlotAllocator(uint32_t num_slots, uint32_t page_size)
        : num_slots(num_slots), page_size(page_size), is_held_(num_pages() + 1) {
        assert(page_size > 0 && num_slots % page_size == 0);
    }

    const uint32_t num_slots;
    const uint32_t page_size;

    uint32_t num_pages() const { return num_slots / page_size; }
    uint32_t free_pages() const {
        return static_cast<uint32_t>(freed_.size()) + num_pages() - handed_out_;
    }

    // Makes sure that `count` more pages can be allocated, and all come back, whatever memory there
    // is then.
    void reserve(uint32_t count) {
        size_t most = std::min<size_t>(size_t{handed_out_} + count, num_pages());
        if (most > freed_.capacity())
            freed_.reserve(std::clamp<size_t>(2 * freed_.capacity(), most, num_pages()));
    }

    // `count` pages, at most `free_pages`, as slots. Fails, if it does, before anything changed.
    void allocate(uint32_t count, int32_t* out) {
        assert(count <= free_pages());
        reserve(count - static_cast<uint32_t>(std::min<size_t>(count, freed_.size())));
        if (page_size == 1)
            return allocate_pages(count, out, std::integral_constant<uint32_t, 1>());
        allocate_pages(count, out, page_size);
    }

    // Takes whole pages back; false, and nothing happened, where some slot is not held, comes twice
    // or is not next to the others of its page.
    template <class Int>
    bool free(const Int* slots, size_t n) noexcept {
        if (page_size == 1) return free_pages_of(slots, n, std::integral_constant<uint32_t, 1>());
        return n % page_size == 0 && free_pages_of(slots, n / page_size, page_size);
    }

    bool is_held(uint32_t page) const { return is_held_[page]; }

    // The free pages, the next one to be handed out last.
    std::vector<uint32_t> free_list() const {
        std::vector<uint32_t> pages;
        for (uint32_t page = num_pages(); page > handed_out_; --page) pages.push_back(page);
        pages.insert(pages.end(), freed_.begin(), freed_.end());
        return pages;
    }

    // Whether exactly the pages that are not held can be handed out; for checks.
    bool lists_what_is_free() const {
        std::vector<bool> is_listed(is_held_.size());
        for (uint32_t page : freed_) {
            if (page < 1 || page > handed_out_ || is_held_[page] || is_listed[page]) return false;
            is_listed[page] = true;
        }
        auto first = is_held_.begin() + 1, fresh = first + handed_out_;
        return std::count(first, fresh, uint8_t{false}) == static_cast<ptrdiff_t>(freed_.size()) &&
               std::count(fresh, is_held_.end(), uint8_t{true}) == 0;
    }

  private:
    // `size` is the page size, as a constant where that is worth it.
    template <class Size>
    void allocate_pages(uint32_t count, int32_t* out, Size size) noexcept {
        auto again = static_cast<uint32_t>(std::min<size_t>(count, freed_.size()));
        const uint32_t* top = freed_.data() + freed_.size();
        uint8_t* is_held = is_held_.data();
        for (uint32_t i = 0; i < again; ++i) {
            uint32_t page = *--top;
            is_held[page] = true;
            for (uint32_t j = 0; j < size; ++j) *out++ = static_cast<int32_t>(page * size + j);
        }
        freed_.resize(freed_.size() - again);
        uint32_t fresh = count - again, first = handed_out_ + 1;
        std::fill_n(is_held + first, fresh, true);
        std::iota(out, out + size_t{fresh} * size, static_cast<int32_t>(first * size));
        handed_out_ += fresh;
    }

    template <class Int, class Size>
    bool free_pages_of(const Int* slots, size_t count, Size size) noexcept {
        size_t done = 0;
        while (done < count && release(slots + done * size, size)) ++done;
        if (done < count) {
            while (done-- > 0) is_held_[slots[done * size] / size] = true;
            return false;
        }
        size_t top = freed_.size() + count;
        assert(top <= freed_.capacity());
        freed_.resize(top);
        for (size_t i = 0; i < count; ++i) {
            freed_[--top] = static_cast<uint32_t>(slots[i * size]) / size;
        }
        return true;
    }

    template <class Int, class Size>
    bool release(const Int* slots, Size size) {
        auto first = static_cast<uint64_t>(slots[0]);
        if (first < size || first >= uint64_t{num_slots} + size) return false;
        auto page = static_cast<uint32_t>(first) / size;
        for (uint32_t j = 0; j < size; ++j) {
            if (static_cast<uint64_t>(slots[j]) != uint64_t{page} * size + j) return false;
        }
        if (!is_held_[page]) return false;
        is_held_[page] = false;
        return true;
    }

    std::vector<uint8_t> is_held_;
    std::vector<uint32_t> freed_;
    uint32_t handed_out_ = 0;  // pages 1 to here were handed out at least once
};

}  // namespace radixkv
