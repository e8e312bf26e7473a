// radixkv/cache/ledger.py, as far as the steps of a request's life need it.
#pragma once

#include "allocator_binding.hpp"
#include "arrays.hpp"

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
    size_t size() const { return size_t{slots().num_slots} + page_size(); }

    // Slots that are free or wait behind a fence. May run Python code, which may raise.
    uint64_t coming_size() {
        uint64_t free = free_size();  // a fence that is done changes what waits
        return free + deferred_size();
    }

    // Makes sure that `take` of that many, which are free then, does not fail.
    void reserve(uint64_t count) { slots().reserve(static_cast<uint32_t>(count / page_size())); }

    // Out of a tree that is gone: they are free with the last of their readers, of which there is
    // one or more.
    void retire(const std::vector<int32_t>& slots, const int32_t* readers) noexcept;

    // False, and nothing was taken, where fewer are free. May run Python code, which may raise.
    bool take(uint64_t count, int32_t* out);

    void check_range(const int32_t* slots, size_t n) const;

    friend class Freeing;

  private:
    AllocatorBinding& pool() const { return *nb::inst_ptr<AllocatorBinding>(allocator_); }
    SlotAllocator& slots() const { return pool().slots(); }
    int32_t* sharers_of() const { return static_cast<int32_t*>(array_data(sharers_)); }
    bool* retired() const { return static_cast<bool*>(array_data(is_retired_)); }
    bool is_anything_deferred() const { return PyObject_Size(deferred_.ptr()) > 0; }
    nb::object behind(nb::handle fence) const;
    void collect() {
        if (is_anything_deferred() && !is_collecting_) collect_deferred();
    }
    void collect_deferred();

    nb::object allocator_;
    nb::object deferred_;  // a deque of (fence, slots), the first to be done first
    nb::object sharers_, is_retired_;
    bool is_collecting_ = false;
};

// Slots on their way to the free ones, or behind a fence if one is given or something waits behind
// one already. Renewed before the change that it is part of; `prepare` is what can fail last.
class Freeing {
  public:
    Freeing(LedgerBinding& ledger, nb::handle fence) : ledger_(ledger), fence_(fence) {}

    // Makes sure that it waits behind the right fence; whether it did before. Otherwise Python code
    // may have run, as a tuple was made.
    bool renew();

    // Room for `count` slots; they may be freed then. Nothing has changed yet.
    int32_t* prepare(size_t count);

    // The slots that a request gives back: what nothing else holds is freed. They must stay there
    // until `commit`.
    void prepare_return(const int32_t* slots, size_t n);

    // What was prepared goes. Raises, and changes nothing, for slots that are not held.
    void commit();

  private:
    LedgerBinding& ledger_;
    nb::handle fence_;
    nb::object entry_;  // of `deferred`; nothing: the slots are free at once
    std::vector<int32_t> freed_, shared_;
    const int32_t* slots_ = nullptr;
    size_t count_ = 0;
    bool has_retired_ = false;
};

}  // namespace radixkv
