#include "ledger_binding.hpp"

#include <algorithm>
#include <iterator>
#include <memory>

#include "input.hpp"

namespace radixkv {

namespace {

nb::object zeros(const AllocatorBinding& pool, const char* dtype) {
    return python().zeros(uint64_t{pool.num_slots()} + pool.page_size(), dtype);
}

}  // namespace

LedgerBinding::LedgerBinding(nb::handle_t<AllocatorBinding> allocator)
    : allocator_(nb::borrow(allocator)),
      deferred_(python().deque()),
      sharers_(zeros(pool(), "int32")),
      is_retired_(zeros(pool(), "bool")) {}

// Frees what waits behind fences that are done, in the order they were given. A query may call the
// cache: nothing is collected within that, and what it frees waits for the next time.
void LedgerBinding::collect_deferred() {
    is_collecting_ = true;
    auto end = [](bool* is_collecting) { *is_collecting = false; };
    std::unique_ptr<bool, decltype(end)> guard(&is_collecting_, end);
    for (Py_ssize_t left = PyObject_Size(deferred_.ptr()); left > 0; --left) {
        nb::object first = deferred_[0];
        if (!nb::cast<bool>(nb::bool_(nb::object(first[0].attr("query")())))) return;
        nb::object slots = first[1];
        deferred_.attr("popleft")();
        pool().free(slots);
    }
}

uint64_t LedgerBinding::free_size() {
    collect();
    return pool().free_size();
}

uint64_t LedgerBinding::deferred_size() const {
    uint64_t size = 0;
    if (!is_anything_deferred()) return size;
    for (nb::handle item : deferred_) size += nb::len(nb::object(item[1]));
    return size;
}

nb::object LedgerBinding::take(nb::handle n) {
    collect();
    return pool().allocate(n);
}

bool LedgerBinding::take(uint64_t count, int32_t* out) {
    if (count > free_size()) return false;
    slots().allocate(static_cast<uint32_t>(count / page_size()), out);
    return true;
}

void LedgerBinding::check_range(const int32_t* slots, size_t n) const {
    pool().check_range(slots, n);
}

void LedgerBinding::give_back(nb::handle slots, nb::handle fence) {
    Slots given(slots);
    check_range(given.items(), given.size());
    Freeing freeing(*this, fence);
    freeing.renew();
    freeing.prepare_return(given.items(), given.size());
    freeing.commit();
}

void LedgerBinding::free(nb::handle slots, nb::handle fence) {
    Slots given(slots);
    check_range(given.items(), given.size());
    Freeing freeing(*this, fence);
    freeing.renew();
    std::copy_n(given.items(), given.size(), freeing.prepare(given.size()));
    freeing.commit();
}

void LedgerBinding::retire(const std::vector<int32_t>& slots, const int32_t* readers) noexcept {
    for (int32_t slot : slots) {
        retired()[slot] = true;
        sharers_of()[slot] += readers[slot] - 1;
    }
}

// The latest fence if no fence is given: what reads slots that are freed may still run.
nb::object LedgerBinding::behind(nb::handle fence) const {
    if (!fence.is_none() || !is_anything_deferred()) return nb::borrow(fence);
    return deferred_[-1][0];
}

// ---- freeing ----

bool Freeing::renew() {
    nb::object behind = ledger_.behind(fence_);
    if (behind.is_none()) entry_.reset();
    if (behind.is_none() || (entry_ && PyTuple_GET_ITEM(entry_.ptr(), 0) == behind.ptr()))
        return true;
    entry_ = nb::make_tuple(behind, nb::none());
    renew();
    return false;
}

// Even without slots an entry is made: what the tree gives up meanwhile waits behind its fence.
int32_t* Freeing::prepare(size_t count) {
    int32_t* slots;
    count_ = count;
    if (entry_) {
        set_item(entry_, 1, new_array(count, slots));
        ledger_.deferred_.attr("append")(entry_);
    } else {
        freed_.resize(count);
        slots = freed_.data();
    }
    slots_ = slots;
    return slots;
}

void Freeing::prepare_return(const int32_t* slots, size_t n) {
    const int32_t* sharers = ledger_.sharers_of();
    const bool* is_retired = ledger_.retired();
    bool has_shared = false;
    for (size_t i = 0; i < n; ++i) {
        has_shared |= sharers[slots[i]] > 0;
        has_retired_ |= is_retired[slots[i]];
    }
    if (!has_shared && !entry_) {
        slots_ = slots;  // as they are
        count_ = n;
        return;
    }
    std::copy_if(slots, slots + n, std::back_inserter(shared_),
                 [&](int32_t slot) { return sharers[slot] > 0; });
    std::copy_if(slots, slots + n, prepare(n - shared_.size()),
                 [&](int32_t slot) { return sharers[slot] == 0; });
}

void Freeing::commit() {
    if (!entry_ && count_) ledger_.pool().free(slots_, count_);
    for (size_t i = 0; has_retired_ && i < count_; ++i) ledger_.retired()[slots_[i]] = false;
    for (int32_t slot : shared_) --ledger_.sharers_of()[slot];
}

}  // namespace radixkv
