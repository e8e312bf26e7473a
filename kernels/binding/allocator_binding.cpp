#include "allocator_binding.hpp"

#include <algorithm>

#include "arrays.hpp"

namespace radixkv {

using namespace nb::literals;

namespace {

SlotAllocator checked(nb::handle num_slots, nb::handle page_size) {
    python().check_pool_shape(num_slots, page_size);
    return {nb::cast<uint32_t>(num_slots), nb::cast<uint32_t>(page_size)};
}

[[noreturn]] void raise_slot(const nb::object& error, int64_t slot, const std::string& must_be,
                             const std::string& but = "") {
    raise(error, "slots must be " + must_be + "; got " + std::to_string(slot) + but,
          "slot"_a = slot);
}

nb::object as_array(nb::handle slots) {
    try {
        return python().asarray(slots);
    } catch (nb::python_error& error) {
        for (PyObject* kind :
             {PyExc_ValueError, PyExc_TypeError, PyExc_OverflowError, PyExc_RuntimeError}) {
            if (error.matches(kind)) {
                raise(python().InvalidSlotsError,
                      "slots must be ints in one dimension; got " +
                          nb::cast<std::string>(slots.type().attr("__name__")));
            }
        }
        throw;
    }
}

// Raises InvalidSlotsError unless they are ints in one dimension.
nb::object as_ints(nb::handle slots) {
    nb::object array = as_array(slots);
    nb::object dtype = array.attr("dtype"), shape = array.attr("shape");
    std::string kind = nb::cast<std::string>(nb::object(dtype.attr("kind")));
    auto size = nb::cast<size_t>(array.attr("size"));
    if (nb::cast<int>(array.attr("ndim")) != 1 || (size > 0 && kind != "i" && kind != "u")) {
        raise(python().InvalidSlotsError, "slots must be ints in one dimension; got dtype " +
                                              nb::cast<std::string>(nb::str(dtype)) + ", shape " +
                                              show(shape));
    }
    return array;
}

}  // namespace

AllocatorBinding::AllocatorBinding(nb::handle num_slots, nb::handle page_size)
    : allocator_(checked(num_slots, page_size)) {}

nb::object AllocatorBinding::allocate(nb::handle n) {
    int64_t wanted = clamp_int(n, "n");
    if (wanted < 0 || wanted % page_size()) {
        raise(python().InvalidArgumentError,
              "n must be 0 or a positive multiple of page size " + std::to_string(page_size()) +
                  "; got " + nb::cast<std::string>(nb::str(n)),
              "n"_a = n);
    }
    if (static_cast<uint64_t>(wanted) > free_size()) return nb::none();
    int32_t* out;
    nb::object slots = new_array(wanted, out);
    allocator_.allocate(static_cast<uint32_t>(wanted) / page_size(), out);
    return slots;
}

void AllocatorBinding::free(nb::handle slots) {
    if (auto array = view_int32(slots)) return free(array.items, array.size);
    nb::object converted = as_int64(slots);
    auto array = view_int64(converted);
    if (allocator_.free(array.items, array.size)) return;
    free_slowly({array.items, array.items + array.size});
}

// In order, all of them in the pool. Raises InvalidSlotsError.
nb::object AllocatorBinding::as_int64(nb::handle slots) const {
    nb::object ints = as_ints(slots);
    python().check_range(ints, num_slots(), page_size());
    return ints.attr("astype")("int64");
}

void AllocatorBinding::check_slots(nb::handle slots) const {
    auto array = view_int32(slots);
    if (array) return check_range(array.items, array.size);
    as_int64(slots);
}

void AllocatorBinding::free(const int32_t* slots, size_t n) {
    if (!allocator_.free(slots, n)) free_slowly({slots, slots + n});
}

void AllocatorBinding::free_slowly(std::vector<int64_t> slots) {
    check_range(slots.data(), slots.size());
    std::vector<int64_t> sorted = slots;
    std::sort(sorted.begin(), sorted.end());
    check_twice(sorted);
    check_whole_pages(slots, sorted);
    check_held(slots);
    // Nothing is wrong but the order: pages as they come first.
    std::vector<int64_t> whole;
    std::vector<bool> taken(allocator_.num_pages() + 1);
    for (int64_t slot : slots) {
        int64_t page = slot / page_size();
        if (taken[page]) continue;
        taken[page] = true;
        for (uint32_t j = 0; j < page_size(); ++j) whole.push_back(page * page_size() + j);
    }
    allocator_.free(whole.data(), whole.size());
}

void AllocatorBinding::raise_range(int64_t slot) const {
    int64_t low = page_size(), high = int64_t{num_slots()} + page_size() - 1;
    raise_slot(python().InvalidSlotsError, slot,
               "from " + std::to_string(low) + " to " + std::to_string(high));
}

// Names the slot that comes most often.
void AllocatorBinding::check_twice(const std::vector<int64_t>& sorted) const {
    size_t most = 1;
    int64_t twice = 0;
    for (size_t from = 0, to; from < sorted.size(); from = to) {
        for (to = from + 1; to < sorted.size() && sorted[to] == sorted[from];) ++to;
        if (to - from > most) {
            most = to - from;
            twice = sorted[from];
        }
    }
    if (most > 1) raise_slot(python().SlotNotAllocatedError, twice, "distinct", " twice");
}

// Names the first given slot of the lowest page that is there in part.
void AllocatorBinding::check_whole_pages(const std::vector<int64_t>& slots,
                                         const std::vector<int64_t>& sorted) const {
    auto page_of = [&](int64_t slot) { return slot / page_size(); };
    for (size_t from = 0, to; from < sorted.size(); from = to) {
        for (to = from + 1; to < sorted.size() && page_of(sorted[to]) == page_of(sorted[from]);)
            ++to;
        if (to - from == page_size()) continue;
        int64_t slot = *std::find_if(slots.begin(), slots.end(), [&](int64_t slot) {
            return page_of(slot) == page_of(sorted[from]);
        });
        raise_slot(python().InvalidSlotsError, slot,
                   "whole pages of " + std::to_string(page_size()),
                   " without the rest of its page");
    }
}

void AllocatorBinding::check_held(const std::vector<int64_t>& slots) const {
    for (int64_t slot : slots) {
        if (allocator_.is_held(static_cast<uint32_t>(slot / page_size()))) continue;
        raise_slot(python().SlotNotAllocatedError, slot - slot % page_size(), "allocated",
                   ", which is free");
    }
}

nb::object AllocatorBinding::free_slots() const {
    int32_t* out;
    nb::object slots = new_array(free_size(), out);
    for (uint32_t page : allocator_.free_list()) {
        for (uint32_t j = 0; j < page_size(); ++j)
            *out++ = static_cast<int32_t>(page * page_size() + j);
    }
    return slots;
}

nb::object AllocatorBinding::free_marks(size_t first, size_t end) const {
    bool* out;
    nb::object marks = new_array(end > first ? end - first : 0, out);
    for (size_t slot = first; slot < end; ++slot) {
        size_t page = slot / page_size();
        *out++ = page >= 1 && page <= allocator_.num_pages() &&
                 !allocator_.is_held(static_cast<uint32_t>(page));
    }
    return marks;
}

nb::list AllocatorBinding::check_integrity() const {
    nb::list lines;
    if (!allocator_.lists_what_is_free())
        lines.append("I1 partition: the list of free pages is not that of the pages not held");
    return lines;
}

}  // namespace radixkv
