// radixkv/memory/allocator.py over `SlotAllocator`: arguments and errors.
#pragma once

#include "allocator.hpp"
#include "python.hpp"

namespace radixkv {

class PythonAllocator {
  public:
    PythonAllocator(nb::handle num_slots, nb::handle page_size);

    uint32_t num_slots() const { return allocator_.num_slots; }
    uint32_t page_size() const { return allocator_.page_size; }
    uint64_t free_size() const { return uint64_t{allocator_.free_pages()} * allocator_.page_size; }

    // None where fewer are free.
    nb::object allocate(nb::handle n);

    void free(nb::handle slots);
    nb::object free_slots() const;
    SlotAllocator& slots() { return allocator_; }

  private:
    // What `SlotAllocator::free` refused: raises, or, where whole pages came in another order,
    // takes them.
    void free_slowly(std::vector<int64_t> slots);
    void check_range(const std::vector<int64_t>& slots) const;
    void check_twice(const std::vector<int64_t>& sorted) const;
    void check_whole_pages(const std::vector<int64_t>& slots,
                           const std::vector<int64_t>& sorted) const;
    void check_held(const std::vector<int64_t>& slots) const;

    SlotAllocator allocator_;
};

}  // namespace radixkv
