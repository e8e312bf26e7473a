// The steps of a request's life that go through tree and ledger, in one call each.
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

uint64_t checked_count(nb::handle count, const char* name) {
    int64_t value = PyLong_CheckExact(count.ptr()) ? clamp_int(count, name) : -1;
    if (value >= 0) return static_cast<uint64_t>(value);
    nb::dict named;
    named[name] = count;
    return nb::cast<uint64_t>(python().at_least(0, **named));
}

}  // namespace

// Slots for `count` tokens, evicting what that takes; false, and none taken, where there is no room
// now.
bool PythonTree::take(uint64_t count, PythonLedger& ledger, int32_t* out) {
    uint64_t coming = ledger.coming_size();
    wait_for_readers();  // a fence may have let other threads run
    if (count > coming + tree_.evictable_size()) return false;
    if (count > coming) {
        std::vector<int32_t> evicted(count - coming);
        evict_slots(evicted.size(), evicted.data());
        ledger.free(evicted.data(), evicted.size(), nb::none());
    }
    return ledger.take(count, out);
}

nb::object PythonTree::admit(nb::handle ids, PythonLedger& ledger, nb::handle row, nb::handle space,
                             nb::handle content, nb::handle max_cached, nb::handle extra) {
    uint64_t more = checked_count(extra, "extra");
    uint64_t limit = max_cached.is_none() ? UINT64_MAX : checked_count(max_cached, "max_cached");
    nb::object codes = encode(ids, content, false);
    NodeId root = NONE;
    uint64_t needed = 0;
    Descent found;
    with_key(
        ids, codes, [&] { root = settle([&] { return spaces_.find(space); }); },
        [&](auto key) -> std::optional<bool> {
            if (is_suspect(key, 0)) return std::nullopt;
            auto start = key;
            start.size = static_cast<uint32_t>(std::min<uint64_t>(key.size, limit));
            found = tree_.descend(root, start);
            if (!key.is_good(found.length)) return std::nullopt;
            uint64_t page = page_size(), all = key.size + more;
            needed = (all + page - 1) / page * page;
            return true;
        });
    int32_t* table = checked_row(row, needed);
    tree_.copy_slots(found.partial, 0, found.length, table);
    // Lock before judging capacity: what is about to be used is not evictable.
    nb::object handle = new_handle(touch(found, tree_.path));
    inc_lock_ref(handle);
    uint64_t before = tree_.evictable_size();
    bool is_taken = false;
    try {
        is_taken = take(needed - found.length, ledger, table + found.length);
    } catch (...) {  // a fence may raise
        dec_lock_ref(handle);
        throw;
    }
    uint64_t evicted = before - tree_.evictable_size();
    if (!is_taken) {
        dec_lock_ref(handle);
        return named_tuple(python().AdmitResult, 0, nb::none(), evicted);
    }
    return named_tuple(python().AdmitResult, found.length, std::move(handle), evicted);
}

nb::object PythonTree::publish(nb::handle ids, PythonLedger& ledger, nb::handle row,
                               nb::handle space, nb::handle content, nb::handle priority,
                               bool chunked, nb::handle held, nb::handle fence) {
    spaces_.check(space);
    int64_t rank = clamp_int(priority, "priority");
    check_known(held, space);
    nb::object codes = encode(ids, content, true);
    int32_t* table = nullptr;
    std::vector<int32_t> duplicates;
    Inserted inserted = insert_codes(ids, codes, space, [&](NodeId root, const auto& key) {
        Known known = known_by(held, key.size);
        table = checked_row(row, key.size);
        int32_t* own = table + known.length;
        Insert how{own, key.size - known.length, rank, !chunked, known};
        ledger.check_range(own, how.count);
        return insert_key(root, key, how, [&](const Descent& found) {
            duplicates.assign(own, table + found.length);
            tree_.copy_slots(found.partial, known.length, found.length, own);
        });
    });
    nb::object handle = new_handle(inserted.place);
    inc_lock_ref(handle);
    if (!held.is_none()) dec_lock_ref(held);
    ledger.give_back(std::move(duplicates), fence);
    return named_tuple(python().PublishResult, inserted.prefix, std::move(handle));
}

}  // namespace radixkv
