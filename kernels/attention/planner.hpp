// How the rows of a step are cut into work items:
// radixkv/attention/shared_prefix/python_planner.py, the same plan in microseconds.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <type_traits>
#include <utility>
#include <vector>

namespace radixkv {

// The slots of one request, read in place; `query_len` new tokens are at the end.
struct Row {
    const int32_t* slots;
    int32_t length, query_len;
    // The first new token sees positions below this one, each later one a position more.
    int32_t full_end() const { return length - query_len + 1; }
};

// In the order of plan.py.
struct Shape {
    int32_t group, kv_heads, narrow_rows, wide_rows, wide_blocks, narrow_blocks;
    int32_t shortest_wide, shortest_narrow, longest_narrow, share;
};

// Read as it comes from NumPy: ten int32 in order.
static_assert(std::is_trivially_copyable_v<Shape> && sizeof(Shape) == 10 * sizeof(int32_t));

// Positions `start` to `end` of `row`, which all of `requests` have in common.
struct SharedRun {
    int32_t row, start, end;
    std::vector<int32_t> requests;
    int64_t tokens;  // new ones of all requests
    int64_t length() const { return end - start; }
    bool is_shared() const { return requests.size() > 1; }
};

// The arrays of TreePlan.
struct Plan {
    std::vector<int32_t> wide, narrow, q_indices, merge_indptr, runs, growing;
};

// In the order of SURVEY in plan.py.
using Survey = std::array<int64_t, 12>;

class Planner {
  public:
    explicit Planner(std::vector<Row> rows);

    // What cutting by `shape` would give.
    Survey survey(const Shape& shape);
    Plan cut(const Shape& shape);

  private:
    using Runs = std::vector<SharedRun>;

    struct Group {
        std::vector<int32_t> requests;
        int32_t at, begin;
    };

    // `parts`: the tokens of a tile, each with the number of its partial result. `limit`, `step`:
    // what they see, see attend.py.
    struct Piece {
        int32_t row, start, end, limit, step;
        std::vector<std::pair<int32_t, int32_t>> parts;
    };

    const Runs& shared_runs(int32_t share);
    Runs find_runs(int32_t share) const;
    std::vector<std::vector<int32_t>> by_slot(const Group& group) const;
    void visit(const Group& group, std::vector<int32_t>& same, int32_t share, Runs& runs,
               std::vector<Group>& later) const;
    SharedRun own_run(int32_t request, int32_t begin) const;
    int64_t num_tokens(const std::vector<int32_t>& requests) const;
    void add_pieces(const SharedRun& run, int64_t start, int64_t end, const Shape& shape,
                    const std::vector<int32_t>& num_parts, std::vector<Piece>& pieces) const;
    std::vector<int32_t> merge_indptr_of(const std::vector<int32_t>& num_parts) const;
    void pack(std::vector<Piece>& pieces, Plan& plan, std::vector<int32_t>& items) const;
    std::vector<int32_t> growing(const std::vector<int32_t>& narrow) const;

    std::vector<Row> rows_;
    std::vector<int32_t> first_tokens_;
    std::map<int32_t, Runs> runs_;  // by share
};

}  // namespace radixkv
