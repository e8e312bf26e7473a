// How a batch's rows are cut into work items: radixkv/attention/shared_prefix/python_planner.py, the same
// plan in microseconds.
#pragma once

#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

namespace radixkv {

// The slots of one request. They are read in place.
struct Row {
    const int32_t* slots;
    int32_t length;
};

struct Shape {
    int32_t group, kv_heads, narrow_rows, wide_rows, wide_blocks, narrow_blocks;
    int32_t shortest_wide, shortest_narrow, longest_narrow, share;
};

// Read as it comes from NumPy: ten int32 in order.
static_assert(std::is_trivially_copyable_v<Shape> && sizeof(Shape) == 10 * sizeof(int32_t));

// The tokens `start` to `end` of `row`, which all of `requests` have in common.
struct SharedRun {
    int32_t row, start, end;
    std::vector<int32_t> requests;
    int64_t length() const { return end - start; }
};

class Planner {
  public:
    Planner(std::vector<Row> rows, const Shape& shape) : rows_(std::move(rows)), shape_(shape) {}

    // Fills what follows. Call it once.
    void plan();

    std::vector<SharedRun> runs;
    std::vector<int32_t> wide, narrow, q_indices, starts, growing;

  private:
    struct Group {
        std::vector<int32_t> requests;
        int32_t at, begin;
    };

    // `parts`: the requests of a tile, each with the number of its partial result.
    struct Piece {
        int32_t row, start, end;
        std::vector<std::pair<int32_t, int32_t>> parts;
    };

    void find_runs();
    std::vector<std::vector<int32_t>> by_slot(const Group& group) const;
    void visit(const Group& group, std::vector<int32_t>& same, std::vector<Group>& later);

    bool is_wide(const SharedRun& run) const;
    int64_t tile_size(const SharedRun& run) const;
    int64_t num_tiles(const SharedRun& run) const;
    int64_t wide_chunk() const;
    int64_t blocks_at(int64_t chunk) const;
    int64_t narrow_work() const;
    int64_t narrow_chunk() const;

    void cut(const SharedRun& run, int64_t n, std::vector<Piece>& pieces);
    void pack();
    void pack_items(std::vector<Piece>& pieces, std::vector<int32_t>& items);

    std::vector<Row> rows_;
    Shape shape_;
    std::vector<int32_t> parts_;
    std::vector<Piece> wide_, narrow_;
};

}  // namespace radixkv
