// Many prompts in one call: what can be done without the GIL is done without it.
#include <deque>

#include "tree_binding.hpp"

namespace radixkv {

namespace {

// iter(prompts), or InvalidTokensError.
nb::object iterator_of(nb::handle prompts) {
    PyObject* iterator = PyObject_GetIter(prompts.ptr());
    if (iterator) return nb::steal(iterator);
    if (!PyErr_ExceptionMatches(PyExc_TypeError)) throw nb::python_error();
    PyErr_Clear();
    raise(python().InvalidTokensError,
          "prompts must be a sequence of prompts; got " +
              nb::cast<std::string>(prompts.type().attr("__name__")),
          nb::arg("value") = prompts);
}

// Prompts that can be read without the GIL: lists are read into arrays first. Raises what is wrong
// with one, by its number.
class Prompts {
  public:
    // checked: they are int32 arrays of token ids.
    Prompts(nb::handle prompts, bool checked) : checked_(checked) {
        for (nb::handle prompt : nb::borrow<nb::iterator>(iterator_of(prompts)))
            owners_.push_back(nb::borrow(prompt));
        for (size_t i = 0; i < owners_.size(); ++i) add(i);
    }

    size_t size() const { return buffers_.size(); }

    template <class Use>
    auto read(size_t i, const Use& use) const {
        return buffers_[i].read(use);
    }

  private:
    void add(size_t i) {
        nb::object& owner = owners_[i];
        if (!checked_ && view_list(owner)) {
            nb::object read = read_ids(owner);
            if (!read.is_none()) owner = std::move(read);
        }
        buffers_.emplace_back(owner);
        if (buffers_.back().is_readable() &&
            (checked_ || buffers_.back().read([](const auto& key) { return key.is_good(0); })))
            return;
        std::string name = "prompts[" + std::to_string(i) + "]";
        owner = convert_token_ids(owner, name.c_str());
        buffers_.pop_back();
        buffers_.emplace_back(owner);
    }

    bool checked_;
    std::vector<nb::object> owners_;
    std::deque<Buffer> buffers_;  // these never move
};

// Counts one reader. It must outlive the time without the GIL, so that a thread that waits for it
// does not go on before this one releases the GIL again.
class BatchReader {
  public:
    explicit BatchReader(std::atomic<int>& readers) : readers_(readers) { ++readers_; }
    ~BatchReader() {
        --readers_;
        readers_.notify_all();
    }
    BatchReader(const BatchReader&) = delete;
    BatchReader& operator=(const BatchReader&) = delete;

  private:
    std::atomic<int>& readers_;
};

struct Found {
    Descent descent;
    Path path;
    nb::object slots;
    int32_t* items = nullptr;  // of `slots`
    Place place;
};

// Where each key ends, found without the GIL.
std::vector<Found> find_all(const Tree& tree, NodeId root, const Prompts& keys,
                            std::atomic<int>& readers) {
    std::vector<Found> found(keys.size());
    BatchReader reader(readers);
    nb::gil_scoped_release released;
    for (size_t i = 0; i < keys.size(); ++i) {
        found[i].descent =
            keys.read(i, [&](const auto& key) { return tree.descend(root, key, found[i].path); });
    }
    return found;
}

}  // namespace

// Only batches read without the GIL; a change to the tree waits for it, and releases the GIL
// meanwhile so that it can end.
void TreeBinding::wait_for_readers() const {
    while (int readers = readers_.load()) {
        nb::gil_scoped_release released;
        readers_.wait(readers);
    }
}

nb::list TreeBinding::probe_batch(nb::handle prompts, nb::handle space, Checked checked) {
    Prompts keys(prompts, checked);
    std::vector<uint32_t> lengths(keys.size());
    NodeId root = spaces_.find(space);
    {
        BatchReader reader(readers_);
        nb::gil_scoped_release released;
        for (size_t i = 0; i < keys.size(); ++i) {
            lengths[i] = keys.read(
                i, [&](const auto& key) { return tree_.descend(root, key, [](NodeId) {}).length; });
        }
    }
    nb::list answer;
    for (uint32_t length : lengths) answer.append(length);
    return answer;
}

nb::list TreeBinding::match_lengths(nb::handle prompts, nb::handle space, Checked checked) {
    Prompts keys(prompts, checked);
    NodeId root = settle([&] { return spaces_.find(space); });
    std::vector<Found> found = find_all(tree_, root, keys, readers_);
    for (Found& one : found) one.place = touch(one.descent, one.path);
    nb::list answer;
    for (const Found& one : found) answer.append(one.place.length);
    return answer;
}

nb::list TreeBinding::match_batch(nb::handle prompts, nb::handle space, Checked checked) {
    Prompts keys(prompts, checked);
    NodeId root = settle([&] { return spaces_.find(space); });
    std::vector<Found> found = find_all(tree_, root, keys, readers_);
    // From here to the last touch no Python runs: arrays are nothing to its garbage collector.
    for (Found& one : found) one.slots = new_array(one.descent.length, one.items);
    {
        BatchReader reader(readers_);
        nb::gil_scoped_release released;
        for (const Found& one : found)
            tree_.copy_slots(one.path, one.descent.partial, 0, one.descent.length, one.items);
    }
    for (Found& one : found) one.place = touch(one.descent, one.path);
    nb::list answer;
    for (Found& one : found) answer.append(match_result(std::move(one.slots), one.place));
    return answer;
}

}  // namespace radixkv
