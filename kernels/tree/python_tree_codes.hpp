// How the parts of `PythonTree` read keys and store them.
#pragma once

#include "python_tree.hpp"

namespace radixkv {

inline bool is_given(nb::handle content) {
    if (PyTuple_CheckExact(content.ptr())) return PyTuple_GET_SIZE(content.ptr()) > 0;
    int truth = PyObject_IsTrue(content.ptr());
    if (truth < 0) throw nb::python_error();
    return truth;
}

// Calls use(key): the codes, or without them the ids.
template <class Prepare, class Use>
auto with_key(nb::handle ids, const nb::object& codes, const Prepare& prepare, const Use& use) {
    if (!codes) return with_token_ids(ids, "token_ids", prepare, use);
    auto array = view_int32(codes);
    prepare();
    return *use(Int32Key{array.items, static_cast<uint32_t>(array.size), true});
}

// Where codes below 0 are stored, an id below 0 may equal one, so that equality proves nothing.
template <class Key>
bool PythonTree::is_suspect(const Key& key, uint32_t from) const {
    return content_codes_ > 0 && !key.is_good(from);
}

// Where find() put the root, with nobody reading without the GIL: from here to the change no Python
// runs.
template <class Find>
NodeId PythonTree::settle(const Find& find) const {
    NodeId root = find();
    while (readers_.load()) {
        wait_for_readers();
        root = find();
    }
    return root;
}

void check_counts(size_t ids, size_t slots);
void check_known_length(uint32_t length, size_t size);

// What was there is copied by copy_found(Descent) before anything changes.
template <class Key, class CopyFound>
std::optional<PythonTree::Inserted> PythonTree::insert_key(NodeId root, Key key, const Insert& how,
                                                           const CopyFound& copy_found) {
    uint32_t from = how.known.length;
    if (is_suspect(key, from)) return std::nullopt;
    if (key.size - from != how.count) {
        if (!key.is_good(from)) return std::nullopt;
        check_counts(key.size - from, how.count);
    }
    uint32_t whole = key.size - key.size % tree_.page_size;
    if (!key.is_good(whole)) return std::nullopt;
    key.size = whole;
    Descent found = tree_.descend(from ? how.known.node : root, key);
    uint32_t count = whole - found.length;
    Run run(how.slots + (found.length - from), count);
    if (!key.copy(found.length, count, run.tokens())) return std::nullopt;
    copy_found(found);
    NodeId leaf = tree_.extend_path(root, found, std::move(run), how.priority, how.is_hit);
    Place place = tree_.place(tree_.path.empty() ? NONE : tree_.path.back(), whole);
    return Inserted{found.length, leaf, place};
}

// Finds or makes the root for `space`, calls use(key), and records what was stored.
template <class Use>
auto PythonTree::insert_codes(nb::handle ids, const nb::object& codes, nb::handle space,
                              const Use& use) {
    NodeId root = NONE;
    auto drop_empty_root = [&](void*) {
        if (root != NONE && tree_.node(root).is_leaf()) spaces_.remove(root);
    };
    std::unique_ptr<void, decltype(drop_empty_root)> guard(this, drop_empty_root);
    Inserted inserted;
    try {
        inserted = with_key(
            ids, codes, [&] { root = settle([&] { return spaces_.find_or_add(space); }); },
            [&](const auto& key) { return use(root, key); });
    } catch (...) {
        if (codes) content_.attr("settle")();
        throw;
    }
    if (inserted.leaf != NONE) record_stored(inserted.leaf, space, bool(codes));
    if (codes) content_.attr("settle")();
    return inserted;
}

}  // namespace radixkv
