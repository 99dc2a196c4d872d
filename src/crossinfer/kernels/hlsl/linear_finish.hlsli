// What linear_mat and linear_sum share: constants, and what may follow a product,
//
//     output = act(gate) · (y + bias) + residual

struct Constants
{
    uint tokens;         // T
    uint outputs;        // N: rows of the weights that are seen
    uint columns;        // K
    uint chunks;         // of a row of weights
    uint row_vectors;    // 16-byte words of a row of weights
    uint splits;         // parts that K is cut into
    uint split_steps;    // steps of linear_mat in a part
    uint follows;        // the bits below
    uint output_stride;  // elements from a row of what is written to the next
};
static const uint HAS_BIAS = 1;
static const uint HAS_GATE = 2;
static const uint HAS_RESIDUAL = 4;

CONSTANTS(Constants);
