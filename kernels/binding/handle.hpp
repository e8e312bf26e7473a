// Handles, and which of them are locked.
#pragma once

#include "python.hpp"
#include "tree/tree.hpp"

namespace radixkv {

// See `Handle` in radixkv/tree/radix_tree.py. It holds nothing alive: the tree is known by a number
// that no other tree of this process has.
struct Handle {
    uint64_t tree = 0;
    uint64_t epoch = 0;
    Place place;
    uint64_t locks = 0;
    PyObject* self = nullptr;
    Handle* next = nullptr;  // among the locked ones
    Handle* prev = nullptr;
};

// The locked handles of a tree. They live as long as they are locked, even if nothing else refers
// to them.
class LockedHandles {
  public:
    LockedHandles() { clear_list(); }
    ~LockedHandles() { clear(); }
    LockedHandles(const LockedHandles&) = delete;
    LockedHandles& operator=(const LockedHandles&) = delete;

    void add_lock(Handle& handle) noexcept {
        if (handle.locks++) return;
        Py_INCREF(handle.self);
        handle.next = end_.next;
        handle.prev = &end_;
        end_.next->prev = &handle;
        end_.next = &handle;
    }

    void remove_lock(Handle& handle) noexcept {
        if (--handle.locks) return;
        handle.prev->next = handle.next;
        handle.next->prev = handle.prev;
        Py_DECREF(handle.self);
    }

    void clear() {
        Handle* handle = end_.next;
        clear_list();
        while (handle != &end_) {
            Handle* next = handle->next;
            handle->locks = 0;
            Py_DECREF(handle->self);
            handle = next;
        }
    }

    template <class Visit>
    void each(const Visit& visit) const {
        for (Handle* handle = end_.next; handle != &end_; handle = handle->next) visit(*handle);
    }

  private:
    void clear_list() { end_.next = end_.prev = &end_; }

    Handle end_;
};

}  // namespace radixkv
