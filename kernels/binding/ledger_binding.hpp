// radixkv/cache/ledger.py, as far as the steps of a request's life need it.
#pragma once

#include "allocator_binding.hpp"

namespace radixkv {

class LedgerBinding {
  public:
    explicit LedgerBinding(nb::handle_t<AllocatorBinding> allocator);

    nb::object allocator() const { return allocator_; }
    nb::object sharers() const { return sharers_; }
    nb::object is_retired() const { return is_retired_; }
    nb::object deferred() const { return deferred_; }

    // ---- what Python calls ----

    uint64_t free_size();
    uint64_t deferred_size() const;
    nb::object take(nb::handle n);
    void give_back(nb::handle slots, nb::handle fence);
    void free(nb::handle slots, nb::handle fence);

    // ---- the same for the steps of a request's life ----

    uint32_t page_size() const { return slots().page_size; }

    // Slots that are free or wait behind a fence. May run Python code, which may raise.
    uint64_t coming_size() { return free_size() + deferred_size(); }

    // False, and nothing was taken, where fewer are free. May run Python code, which may raise.
    bool take(uint64_t count, int32_t* out);

    void check_range(const int32_t* slots, size_t n) const;
    void give_back(std::vector<int32_t> slots, nb::handle fence);
    void free(const int32_t* slots, size_t n, nb::handle fence);

  private:
    AllocatorBinding& pool() const { return *nb::inst_ptr<AllocatorBinding>(allocator_); }
    SlotAllocator& slots() const { return pool().slots(); }
    bool is_anything_deferred() const { return PyObject_Size(deferred_.ptr()) > 0; }
    void collect();

    nb::object allocator_;
    nb::object deferred_;  // a deque of (fence, slots), the first to be done first
    nb::object sharers_, is_retired_;
};

}  // namespace radixkv
