#include "ledger_binding.hpp"

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

// Frees what waits behind fences that are done, in the order they were given.
void LedgerBinding::collect() {
    while (is_anything_deferred()) {
        nb::object first = deferred_[0];
        if (!nb::cast<bool>(nb::bool_(nb::object(first[0].attr("query")())))) return;
        // A query that called the cache was overtaken by its own call.
        if (!is_anything_deferred() || !nb::object(deferred_[0]).is(first)) continue;
        pool().free(nb::object(deferred_.attr("popleft")()[1]));
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
    give_back({given.items(), given.items() + given.size()}, fence);
}

// They are freed with the last request that held them.
void LedgerBinding::give_back(std::vector<int32_t> slots, nb::handle fence) {
    auto* sharers = static_cast<int32_t*>(array_data(sharers_));
    auto* is_retired = static_cast<bool*>(array_data(is_retired_));
    size_t done = 0;
    for (int32_t slot : slots) {
        if (sharers[slot] > 0) {
            --sharers[slot];
        } else {
            is_retired[slot] = false;
            slots[done++] = slot;
        }
    }
    free(slots.data(), done, fence);
}

// Behind the latest fence if no fence is given: what reads them may still run.
void LedgerBinding::free(const int32_t* slots, size_t n, nb::handle fence) {
    nb::object behind = nb::borrow(fence);
    if (behind.is_none() && is_anything_deferred()) behind = deferred_[-1][0];
    if (!behind.is_none()) {
        // Even without slots: what the tree gives up meanwhile waits behind this fence.
        deferred_.attr("append")(nb::make_tuple(behind, copy_array(slots, n)));
    } else if (n) {
        pool().free(slots, n);
    }
}

void LedgerBinding::free(nb::handle slots, nb::handle fence) {
    Slots given(slots);
    free(given.items(), given.size(), fence);
}

}  // namespace radixkv
