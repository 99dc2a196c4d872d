// embed: output[t, h] = table[ids[t], h]; NaN where ids[t] is not a row of the table.
//
// A table that is larger than a binding takes several dispatches, each of which sees the rows
// first_row … end_row - 1 of it and leaves the rest of the output alone. The first writes the NaN.
//
// Shapes      ids i32 [T], table [V, H] of any storage, output f32 [T, H]
// Dispatch    grid (⌈H / 256⌉, T): a group of 64 threads takes 256 columns of a row, four a thread
// Reads       ids, table
// Writes      output
// Defines     those of weight.hlsli; DENSE = 1: the table is a plain f32 tensor

#include "common.hlsli"
#if !DENSE
#include "weight.hlsli"
#endif

struct Constants
{
    uint table_rows;
    uint columns;
    uint chunks;
    uint row_words;
    uint first_row;
    uint end_row;
};
CONSTANTS(Constants);
ByteAddressBuffer ids : register(t0);
ByteAddressBuffer table : register(t1);
RWByteAddressBuffer output : register(u0);

[numthreads(64, 1, 1)]
void main(uint3 group : SV_GroupID, uint thread : SV_GroupIndex)
{
    uint column_vector = 64 * group.x + thread;
    uint first = 4 * column_vector;
    if (first >= constants.columns)
        return;
    uint id = ids.Load(4 * group.y);
    bool known = id < constants.table_rows;
    bool here = id >= constants.first_row && id < constants.end_row;
    if (known ? !here : constants.first_row > 0)
        return;
    uint row = (known ? id - constants.first_row : 0) * constants.row_words;
#if !DENSE
    float4 values = load_weights(table, 4 * row, constants.chunks, column_vector);
#endif
    [unroll] for (uint i = 0; i < 4; i++)
    {
        if (first + i < constants.columns)
        {
#if DENSE
            uint bits = table.Load(4 * (row + first + i));
#else
            uint bits = asuint(values[i]);
#endif
            output.Store(4 * (group.y * constants.columns + first + i), known ? bits : 0x7fc00000);
        }
    }
}
