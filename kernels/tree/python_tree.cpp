#include "python_tree.hpp"

#include <random>

#include "python_tree_codes.hpp"

namespace radixkv {

using namespace nb::literals;

namespace {

std::atomic<uint64_t> next_number{1};

uint32_t check_page_size(nb::handle page_size) {
    int overflow = 0;
    long long value = 0;
    if (PyLong_CheckExact(page_size.ptr())) {
        value = PyLong_AsLongLongAndOverflow(page_size.ptr(), &overflow);
    }
    if (overflow || value < 1 || value > INT32_MAX) {
        raise(python().InvalidArgumentError,
              "page_size is " + show(page_size) + "; it takes an int of 1 or more");
    }
    return static_cast<uint32_t>(value);
}

Policy policy_named(nb::handle name) {
    python().get_policy(name);  // raises for one that is not there
    static const std::unordered_map<std::string, Policy> policies{
        {"lru", Policy::LRU},           {"lfu", Policy::LFU},          {"fifo", Policy::FIFO},
        {"mru", Policy::MRU},           {"filo", Policy::FILO},        {"slru", Policy::SLRU},
        {"priority", Policy::PRIORITY}, {"adaptive", Policy::ADAPTIVE}};
    return policies.at(nb::cast<std::string>(name));
}

uint64_t random_seed() {
    std::random_device random;
    return uint64_t{random()} << 32 | random();
}

PyTypeObject* handle_type() {
    static auto* type = reinterpret_cast<PyTypeObject*>(nb::type<Handle>().ptr());
    return type;
}

}  // namespace

PythonTree::PythonTree(nb::handle page_size, nb::handle policy, nb::handle)
    : policy_(nb::borrow(policy)),
      tree_(check_page_size(page_size), policy_named(policy), random_seed()),
      spaces_(tree_),
      content_(python().ContentTable()),
      number_(next_number++) {}

// Nothing where there is no content.
nb::object PythonTree::encode(nb::handle ids, nb::handle content, bool intern) const {
    if (!is_given(content)) return {};
    nb::object tokens = convert_token_ids(ids, "token_ids");
    return content_.attr("encode")(tokens, content, "intern"_a = intern);
}

// ---- looking ----

template <class Key>
std::optional<uint32_t> PythonTree::probe_key(NodeId root, const Key& key) const {
    if (is_suspect(key, 0)) return std::nullopt;
    uint32_t length = tree_.descend(root, key, [](NodeId) {}).length;
    return key.is_good(length) ? std::optional(length) : std::nullopt;
}

uint32_t PythonTree::probe(nb::handle ids, nb::handle space, nb::handle content) {
    nb::object codes = encode(ids, content, false);
    NodeId root = NONE;
    return with_key(
        ids, codes, [&] { root = spaces_.find(space); },
        [&](const auto& key) { return probe_key(root, key); });
}

// Makes the path of a descent the newest there is; where the descent ended.
Place PythonTree::touch(const Descent& found, const std::vector<NodeId>& path) {
    NodeId last = found.partial;
    if (last == NONE && !path.empty()) last = path.back();
    tree_.touch(path);
    return tree_.place(last, found.length);
}

nb::object PythonTree::match_result(nb::object slots, const Place& place) const {
    return named_tuple(python().MatchResult, place.length, std::move(slots), new_handle(place));
}

template <class Key>
std::optional<nb::object> PythonTree::match_key(NodeId root, const Key& key) {
    if (is_suspect(key, 0)) return std::nullopt;
    Descent found = tree_.descend(root, key);
    if (!key.is_good(found.length)) return std::nullopt;
    int32_t* out;
    nb::object slots = new_array(found.length, out);
    tree_.copy_slots(found.partial, 0, found.length, out);
    return match_result(std::move(slots), touch(found, tree_.path));
}

nb::object PythonTree::match_prefix(nb::handle ids, nb::handle space, nb::handle content) {
    nb::object codes = encode(ids, content, false);
    NodeId root = NONE;
    return with_key(
        ids, codes, [&] { root = settle([&] { return spaces_.find(space); }); },
        [&](const auto& key) { return match_key(root, key); });
}

// ---- locks ----

nb::object PythonTree::new_handle(const Place& place) const {
    nb::object object = nb::inst_alloc(reinterpret_cast<PyObject*>(handle_type()));
    auto* handle = new (nb::inst_ptr<Handle>(object)) Handle;
    handle->tree = number_;
    handle->epoch = epoch_;
    handle->place = place;
    handle->self = object.ptr();
    nb::inst_mark_ready(object);
    return object;
}

// The handle and the node that holds its last token; refuses what is not ours or not there.
Handle& PythonTree::resolve(nb::handle object, NodeId& node) const {
    const nb::object& error = python().StaleHandleError;
    if (!Py_IS_TYPE(object.ptr(), handle_type()))
        raise(error, "the handle belongs to another tree");
    Handle& handle = *nb::inst_ptr<Handle>(object);
    if (handle.tree != number_) raise(error, "the handle belongs to another tree");
    if (handle.epoch != epoch_) {
        raise(error,
              "the handle is of epoch " + std::to_string(handle.epoch) + ", the tree is in " +
                  std::to_string(epoch_) + "; match again",
              "epoch"_a = epoch_);
    }
    if (!tree_.resolve(handle.place, node)) {
        raise(error, "the handle's tokens were evicted; match again",
              "length"_a = handle.place.length);
    }
    return handle;
}

void PythonTree::inc_lock_ref(nb::handle object) {
    wait_for_readers();
    NodeId node;
    Handle& handle = resolve(object, node);
    node = tree_.split_for_lock(node, handle.place);
    locked_.add_lock(handle);
    tree_.lock(node);
}

void PythonTree::dec_lock_ref(nb::handle object) {
    wait_for_readers();
    NodeId node;
    Handle& handle = resolve(object, node);
    if (!handle.locks) {
        raise(python().NotLockedError, "the handle is not locked; inc_lock_ref comes first");
    }
    locked_.remove_lock(handle);
    tree_.unlock(node);
}

}  // namespace radixkv
