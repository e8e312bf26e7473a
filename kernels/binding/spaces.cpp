#include "spaces.hpp"

namespace radixkv {

namespace {

bool is_namespace(nb::handle space) {
    return Py_IS_TYPE(space.ptr(), reinterpret_cast<PyTypeObject*>(python().Namespace.ptr()));
}

// Equal for equal namespaces only: one of a derived class stands alone in its tuple.
nb::object key_of(nb::handle space) {
    if (!is_namespace(space)) return nb::make_tuple(space);
    return nb::make_tuple(space.attr("salt"), space.attr("adapter"), space.attr("extra_key"),
                          space.attr("weight_version"));
}

NodeId root_at(const nb::dict& by_key, const nb::object& key) {
    PyObject* root = PyDict_GetItemWithError(by_key.ptr(), key.ptr());
    if (root) return static_cast<NodeId>(PyLong_AsUnsignedLong(root));
    if (PyErr_Occurred()) throw nb::python_error();
    return NONE;
}

PrefixHash hash_of(nb::handle space) { return nb::cast<PrefixHash>(python().hash_space(space)); }

}  // namespace

void Spaces::check(nb::handle space) {
    if (!is_namespace(space)) python().check_namespace(space);
}

void Spaces::remember(nb::handle space, NodeId root) {
    if (space.is(python().default_namespace)) {
        default_root_ = root;
    } else if (root != NONE && is_namespace(space)) {
        last_ = nb::borrow(space);
        last_root_ = root;
    }
}

NodeId Spaces::find(nb::handle space) {
    if (space.is(python().default_namespace) && default_root_ != NONE) return default_root_;
    if (last_root_ != NONE && space.is(last_)) return last_root_;
    check(space);
    if (by_root_.empty()) return NONE;
    NodeId root = root_at(by_key_, key_of(space));
    remember(space, root);
    return root;
}

ShareId Spaces::share_of(nb::handle space) const {
    if (space.is_none()) return NO_SHARE;
    check(space);
    if (!tree_.shares().is_set()) return 0;
    nb::object salt = space.attr("salt");
    PyObject* number = PyDict_GetItemWithError(share_of_.ptr(), salt.ptr());
    if (number) return static_cast<ShareId>(PyLong_AsUnsignedLong(number));
    if (PyErr_Occurred()) throw nb::python_error();
    return 0;
}

NodeId Spaces::find_or_add(nb::handle space) {
    NodeId root = find(space);
    if (root != NONE) return root;
    nb::object key = key_of(space);
    root = tree_.add_root(tree_.policy().reads_prefixes() ? hash_of(space) : 0, share_of(space));
    try {
        by_root_[root] = {key, nb::borrow(space)};
        by_key_[key] = nb::int_(root);
    } catch (...) {
        by_root_.erase(root);
        tree_.remove_root(root);
        throw;
    }
    remember(space, root);
    return root;
}

void Spaces::remove(NodeId root) {
    auto space = by_root_.extract(root);
    if (PyDict_DelItem(by_key_.ptr(), space.mapped().key.ptr()) < 0) throw nb::python_error();
    tree_.remove_root(root);
    if (default_root_ == root) default_root_ = NONE;
    if (last_root_ == root) {
        last_root_ = NONE;
        last_.reset();
    }
}

void Spaces::clear() {
    default_root_ = last_root_ = NONE;
    last_.reset();
    by_root_.clear();
    by_key_.clear();
}

std::vector<NodeId> Spaces::roots() const {
    std::vector<NodeId> roots;
    for (auto [key, root] : by_key_) roots.push_back(nb::cast<NodeId>(root));
    return roots;
}

}  // namespace radixkv
