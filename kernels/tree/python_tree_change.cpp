// What changes the tree: insert, evict, reset; and the record of it.
#include "python_tree.hpp"
#include "python_tree_codes.hpp"

namespace radixkv {

using namespace nb::literals;

namespace {

// An instance of a frozen dataclass with slots, without its constructor written in Python.
template <size_t N>
nb::object frozen(const nb::object& type, const std::array<nb::object, N>& names,
                  const std::array<nb::object, N>& values) {
    auto* of = reinterpret_cast<PyTypeObject*>(type.ptr());
    nb::object instance = nb::steal(of->tp_alloc(of, 0));
    if (!instance) throw nb::python_error();
    for (size_t i = 0; i < N; ++i) {
        if (PyObject_GenericSetAttr(instance.ptr(), names[i].ptr(), values[i].ptr()) < 0)
            throw nb::python_error();
    }
    return instance;
}

// Slots are checked first, but an error in the ids is the one to report.
Slots check_slots(nb::handle ids, nb::handle slots) {
    try {
        return Slots(slots);
    } catch (nb::python_error&) {
        convert_token_ids(ids, "token_ids");
        throw;
    }
}

}  // namespace

void check_counts(size_t ids, size_t slots) {
    if (ids == slots) return;
    raise(python().InvalidSlotsError,
          std::to_string(ids) + " token_ids came with " + std::to_string(slots) +
              " slots; they go one to one",
          "token_ids"_a = ids, "slots"_a = slots);
}

void check_known_length(uint32_t length, size_t size) {
    if (length <= size) return;
    raise(python().InvalidArgumentError,
          "after has " + std::to_string(length) + " tokens, token_ids has " + std::to_string(size));
}

// How many tokens the caller vouches for. Raises for a handle that proves nothing; None is fine.
uint32_t PythonTree::check_known(nb::handle after, nb::handle space) {
    NodeId node;
    if (after.is_none()) return 0;
    Handle& handle = resolve(after, node);
    if (!handle.locks) {
        raise(python().NotLockedError, "after is not locked; inc_lock_ref comes first");
    }
    if (node != NONE && tree_.root_of(node) != spaces_.find(space)) {
        raise(python().InvalidArgumentError, "after is of another namespace");
    }
    return handle.place.length;
}

PythonTree::Known PythonTree::known_by(nb::handle after, size_t size) const {
    Known known;
    if (!after.is_none()) known.length = resolve(after, known.node).place.length;
    check_known_length(known.length, size);
    return known;
}

nb::object PythonTree::insert(nb::handle ids, nb::handle slots, nb::handle space,
                              nb::handle content, nb::handle priority, bool chunked,
                              nb::handle after) {
    spaces_.check(space);
    int64_t rank = clamp_int(priority, "priority");
    uint32_t from = check_known(after, space);
    Slots own = check_slots(ids, slots);
    if (is_given(content)) {
        size_t size = view_int32(convert_token_ids(ids, "token_ids")).size;
        check_known_length(from, size);
        check_counts(size - from, own.size());
    }
    nb::object codes = encode(ids, content, true);
    nb::object found = python().no_slots;
    Inserted inserted = insert_codes(ids, codes, space, [&](NodeId root, const auto& key) {
        Insert how{own.items(), own.size(), rank, !chunked, known_by(after, key.size)};
        return insert_key(root, key, how, [&](const Descent& descent) {
            if (descent.length == from) return;
            int32_t* out;
            found = new_array(descent.length - from, out);
            tree_.copy_slots(descent.partial, from, descent.length, out);
        });
    });
    return named_tuple(python().InsertResult, inserted.prefix, std::move(found),
                       new_handle(inserted.place));
}

void PythonTree::record_stored(NodeId leaf, nb::handle space, bool has_content) {
    const Node &node = tree_.node(leaf), &parent = tree_.node(node.parent);
    uint64_t negative = has_content ? count_negative(node.tokens(), node.length) : 0;
    if (tracks_) {
        changes_.push_back({node.run, 0, parent.run, parent.run_offset + parent.length,
                            copy_array(node.tokens(), node.length), nb::borrow(space)});
    }
    if (negative) {
        content_codes_ += negative;
        content_.attr("retain")(copy_array(node.tokens(), node.length));
    }
}

// ---- evicting ----

nb::object PythonTree::evict(nb::handle num_tokens) {
    int64_t wanted = clamp_int(num_tokens, "num_tokens");
    wait_for_readers();
    if (wanted < 0) {
        raise(
            python().InvalidArgumentError,
            "num_tokens is " + nb::cast<std::string>(nb::str(num_tokens)) + "; it takes 0 or more");
    }
    uint64_t page = tree_.page_size, pages = (static_cast<uint64_t>(wanted) + page - 1) / page;
    uint64_t count = std::min(pages, tree_.evictable_size() / page) * page;
    int32_t* out;
    nb::object slots = new_array(count, out);
    evict_slots(count, out);
    return slots;
}

void PythonTree::evict_slots(uint64_t count, int32_t* out) {
    std::vector<NodeId> empty_roots;
    std::vector<int32_t> released;
    tree_.evict(
        count, out, [&](const Trim& trim) { record_trimmed(trim, released); },
        [&](NodeId root) { empty_roots.push_back(root); });
    for (NodeId root : empty_roots) spaces_.remove(root);
    if (!released.empty()) release_content(released);
}

void PythonTree::record_trimmed(const Trim& trim, std::vector<int32_t>& released) {
    const Node& node = trim.node;
    if (tracks_) changes_.push_back({node.run, node.run_offset + trim.keep, 0, 0, {}, {}});
    if (!content_codes_) return;
    for (uint32_t i = trim.keep; i < node.length; ++i) {
        if (node.tokens()[i] < 0) released.push_back(node.tokens()[i]);
    }
}

void PythonTree::release_content(const std::vector<int32_t>& codes) {
    content_codes_ -= codes.size();
    content_.attr("release")(copy_array(codes.data(), codes.size()));
}

nb::object PythonTree::reset() {
    nb::object fresh = python().ContentTable();
    wait_for_readers();
    nb::object slots = all_slots();
    locked_.clear();
    tree_.clear();
    spaces_.clear();
    changes_.clear();
    content_codes_ = 0;
    ++epoch_;
    std::swap(content_, fresh);
    return slots;
}

nb::list PythonTree::take_changes() {
    std::vector<Change> taken;
    taken.swap(changes_);
    nb::list changes;
    for (Change& change : taken) {
        if (change.codes) {
            changes.append(frozen<5>(
                python().Stored, python().stored_fields,
                {nb::cast(change.run), nb::cast(change.parent_run), nb::cast(change.parent_offset),
                 std::move(change.codes), std::move(change.space)}));
        } else {
            changes.append(frozen<2>(python().Trimmed, python().trimmed_fields,
                                     {nb::cast(change.run), nb::cast(change.keep)}));
        }
    }
    return changes;
}

}  // namespace radixkv
