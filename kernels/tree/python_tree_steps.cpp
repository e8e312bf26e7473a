// The steps of a request's life that go through tree and allocator, in one call each.
#include "python_tree.hpp"
#include "python_tree_codes.hpp"

namespace radixkv {

using namespace nb::literals;

namespace {

int32_t* checked_row(nb::handle row, size_t size) {
    int32_t* slots = writeable_int32(row, size);
    if (slots) return slots;
    raise(python().InvalidArgumentError,
          "row is no writeable int32 array of " + std::to_string(size) + " slots or more");
}

void free_or_raise(const std::vector<int32_t>& given, SlotAllocator& slots) {
    if (slots.free(given.data(), given.size())) return;
    raise(python().SlotNotAllocatedError,
          "the tree and the row hold slots that are not the allocator's");
}

}  // namespace

// Frees up `count` slots in all, by evicting; false, and nothing happened, where that is not
// possible.
bool PythonTree::make_room(uint64_t count, SlotAllocator& slots) {
    uint64_t free = uint64_t{slots.free_pages()} * slots.page_size;
    if (count <= free) return true;
    uint64_t missing = count - free;
    if (missing > tree_.evictable_size()) return false;
    std::vector<int32_t> evicted(missing);
    evict_slots(missing, evicted.data());
    free_or_raise(evicted, slots);
    return true;
}

nb::object PythonTree::lock_matched(const Descent& found) {
    NodeId last = found.partial;
    if (last == NONE && !tree_.path.empty()) last = tree_.path.back();
    tree_.touch_path();
    nb::object object = new_handle(tree_.place(last, found.length));
    inc_lock_ref(object);
    return object;
}

nb::object PythonTree::admit(nb::handle ids, SlotAllocator& slots, nb::handle row, nb::handle space,
                             nb::handle content, uint32_t max_cached, uint32_t extra) {
    nb::object codes = encode(ids, content, false);
    NodeId root = NONE;
    uint64_t needed = 0;
    int32_t* table = nullptr;
    Descent found;
    with_key(
        ids, codes, [&] { root = settle([&] { return spaces_.find(space); }); },
        [&](auto key) -> std::optional<bool> {
            if (is_suspect(key)) return std::nullopt;
            auto start = key;
            start.size = std::min(key.size, max_cached);
            found = tree_.descend(root, start);
            if (!key.is_good(found.length)) return std::nullopt;
            uint64_t page = page_size(), all = uint64_t{key.size} + extra;
            needed = (all + page - 1) / page * page;
            return true;
        });
    table = checked_row(row, needed);
    tree_.copy_slots(found.partial, 0, found.length, table);
    nb::object handle = lock_matched(found);
    uint64_t before = tree_.evictable_size();
    if (!make_room(needed - found.length, slots)) {
        dec_lock_ref(handle);
        return nb::none();
    }
    slots.allocate(static_cast<uint32_t>((needed - found.length) / page_size()),
                   table + found.length);
    return nb::make_tuple(found.length, handle, before - tree_.evictable_size());
}

// The node at which the `length` tokens that `held` has locked end, or NONE.
NodeId PythonTree::known_node(nb::handle held, NodeId root, uint32_t length) const {
    NodeId node;
    if (held.is_none() || !resolve(held, node).locks || node == NONE) return NONE;
    return tree_.node(node).end() == length && tree_.root_of(node) == root ? node : NONE;
}

nb::object PythonTree::publish(nb::handle ids, SlotAllocator& slots, nb::handle row,
                               nb::handle space, nb::handle content, int64_t priority, bool chunked,
                               uint32_t shared, nb::handle held) {
    spaces_.check(space);
    NodeId unused;
    if (!held.is_none()) resolve(held, unused);
    nb::object codes = encode(ids, content, true);
    auto array = view_int32(row);
    int32_t* table = checked_row(row, 0);
    std::vector<int32_t> duplicates;
    Inserted inserted = insert_codes(ids, codes, space, [&](NodeId root, const auto& key) {
        Insert how{table, std::min<size_t>(array.size, key.size), priority, !chunked};
        if (shared <= key.size) how.known = known_node(held, root, shared);
        return insert_key(root, key, how, [&](const Descent& found) {
            if (found.length <= shared) return;
            duplicates.assign(table + shared, table + found.length);
            tree_.copy_slots(found.partial, shared, found.length, table + shared);
        });
    });
    nb::object handle = new_handle(inserted.place);
    inc_lock_ref(handle);
    if (!held.is_none()) dec_lock_ref(held);
    free_or_raise(duplicates, slots);
    return nb::make_tuple(inserted.prefix, handle);
}

}  // namespace radixkv
