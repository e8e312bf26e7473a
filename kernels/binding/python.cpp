#include "python.hpp"

#include <exception>

#include "arrays.hpp"

namespace radixkv {

namespace {

nb::object interned(const char* name) { return nb::steal(PyUnicode_InternFromString(name)); }

void translate(const std::exception_ptr& thrown, void*) {
    try {
        std::rethrow_exception(thrown);
    } catch (const std::bad_alloc&) {
        PyErr_SetString(python().OutOfMemoryError.ptr(),
                        "a call must find the memory that it takes; there was none, and nothing "
                        "has changed");
    }
}

// Never freed: objects of Python must not be released after the interpreter is gone.
Imports* looked_up = nullptr;

}  // namespace

void import_python() {
    import_numpy();
    nb::module_ errors = nb::module_::import_("radixkv.errors");
    nb::module_ contract = nb::module_::import_("radixkv.tree.radix_tree");
    nb::module_ space = nb::module_::import_("radixkv.tree.namespace");
    nb::module_ content = nb::module_::import_("radixkv.tree.content");
    // What is not read here is read by NumPy, whatever core RADIXKV_CORE names.
    nb::object reader = nb::module_::import_("radixkv.tree.reader").attr("PYTHON_READER");
    nb::module_ policies = nb::module_::import_("radixkv.tree.policies");
    nb::module_ shares = nb::module_::import_("radixkv.tree.shares");
    nb::module_ allocator = nb::module_::import_("radixkv.memory.allocator");
    looked_up = new Imports{
        .InvalidArgumentError = errors.attr("InvalidArgumentError"),
        .InvalidSlotsError = errors.attr("InvalidSlotsError"),
        .InvalidTokensError = errors.attr("InvalidTokensError"),
        .NotLockedError = errors.attr("NotLockedError"),
        .OutOfMemoryError = errors.attr("OutOfMemoryError"),
        .OutOfSlotsError = errors.attr("OutOfSlotsError"),
        .SlotNotAllocatedError = errors.attr("SlotNotAllocatedError"),
        .StaleHandleError = errors.attr("StaleHandleError"),
        .AdmitResult = contract.attr("AdmitResult"),
        .InsertFromResult = contract.attr("InsertFromResult"),
        .InsertResult = contract.attr("InsertResult"),
        .MatchResult = contract.attr("MatchResult"),
        .NodeInfo = contract.attr("NodeInfo"),
        .NO_CHANGES = contract.attr("NO_CHANGES"),
        .PublishResult = contract.attr("PublishResult"),
        .Stored = contract.attr("Stored"),
        .KeptPath = contract.attr("KeptPath"),
        .no_shares = shares.attr("NO_SHARES"),
        .NodeFacts = contract.attr("NodeFacts"),
        .ShareSizes = shares.attr("ShareSizes"),
        .Trimmed = contract.attr("Trimmed"),
        .stored_fields = {interned("run"), interned("parent_run"), interned("parent_offset"),
                          interned("codes"), interned("namespace")},
        .trimmed_fields = {interned("run"), interned("keep")},
        .Namespace = space.attr("Namespace"),
        .default_namespace = space.attr("DEFAULT"),
        .array_type = nb::module_::import_("array").attr("array"),
        .deque = nb::module_::import_("collections").attr("deque"),
        .no_slots = nb::module_::import_("radixkv.arrays").attr("EMPTY"),
        .zeros = nb::module_::import_("numpy").attr("zeros"),
        .ContentTable = content.attr("ContentTable"),
        .count_codes = content.attr("count_codes"),
        .hash_space = nb::module_::import_("radixkv.tree.prefix_hash").attr("hash_space"),
        .asarray = nb::module_::import_("numpy").attr("asarray"),
        .as_flag = nb::module_::import_("radixkv.arguments").attr("as_flag"),
        .as_int = nb::module_::import_("radixkv.arguments").attr("as_int"),
        .at_least = nb::module_::import_("radixkv.arguments").attr("at_least"),
        .as_slots = reader.attr("slots"),
        .as_token_ids = reader.attr("token_ids"),
        .between = nb::module_::import_("radixkv.arguments").attr("between"),
        .check_namespace = space.attr("check_namespace"),
        .check_pool_shape = allocator.attr("check_pool_shape"),
        .check_range = allocator.attr("check_range"),
        .check_whole_pages = nb::module_::import_("radixkv.arguments").attr("check_whole_pages"),
        .get_policy = policies.attr("get_policy"),
        .shares_in_pages = shares.attr("in_pages"),
    };
    nb::register_exception_translator(translate);
}

const Imports& python() { return *looked_up; }

int64_t clamp_int(nb::handle object, const char* name) {
    nb::object value =
        PyLong_CheckExact(object.ptr()) ? nb::borrow(object) : python().as_int(object, name);
    int overflow = 0;
    long long clamped = PyLong_AsLongLongAndOverflow(value.ptr(), &overflow);
    if (overflow) return overflow > 0 ? INT64_MAX : INT64_MIN;
    return clamped;
}

std::string show(nb::handle object) { return nb::cast<std::string>(nb::repr(object)); }

}  // namespace radixkv
