// radixkv/memory/allocator.py over `SlotAllocator`: arguments and errors.
#pragma once

#include "python.hpp"
#include "tree/allocator.hpp"

namespace radixkv {

class AllocatorBinding {
  public:
    AllocatorBinding(nb::handle num_slots, nb::handle page_size);

    uint32_t num_slots() const { return allocator_.num_slots; }
    uint32_t page_size() const { return allocator_.page_size; }
    uint64_t free_size() const { return uint64_t{allocator_.free_pages()} * allocator_.page_size; }

    // None where fewer are free.
    nb::object allocate(nb::handle n);

    void free(nb::handle slots);
    void free(const int32_t* slots, size_t n);
    void check_slots(nb::handle slots) const;
    nb::object free_slots() const;
    nb::object free_marks(size_t first, size_t end) const;
    nb::list check_integrity() const;
    SlotAllocator& slots() { return allocator_; }

    // Raises InvalidSlotsError for the first slot that is not in the pool.
    template <class Int>
    void check_range(const Int* slots, size_t n) const;

  private:
    // What `SlotAllocator::free` refused: raises, or, where whole pages came in another order,
    // takes them.
    void free_slowly(std::vector<int64_t> slots);
    nb::object as_int64(nb::handle slots) const;
    [[noreturn]] void raise_range(int64_t slot) const;
    void check_twice(const std::vector<int64_t>& sorted) const;
    void check_whole_pages(const std::vector<int64_t>& slots,
                           const std::vector<int64_t>& sorted) const;
    void check_held(const std::vector<int64_t>& slots) const;

    SlotAllocator allocator_;
};

template <class Int>
void AllocatorBinding::check_range(const Int* slots, size_t n) const {
    int64_t low = page_size(), high = int64_t{num_slots()} + page_size() - 1;
    for (size_t i = 0; i < n; ++i) {
        if (slots[i] < low || slots[i] > high) raise_range(slots[i]);
    }
}

}  // namespace radixkv
