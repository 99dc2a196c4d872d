// Rows of the input of linear, and what follows the product. Shared by both linear families.
//
//     ODD_COLUMNS = 1: K is no whole number of units, so elements past the end of a row are zeros
//                      here (what follows there in memory may be NaN)

struct Constants
{
    uint tokens;        // T
    uint outputs;       // N
    uint columns;       // K
    uint chunks;        // of a row of weights
    uint row_vectors;   // 16-byte words of a row of weights
    uint lanes;         // of a team (linear_vec)
    uint follows;       // the bits below
};
static const uint HAS_BIAS = 1;
static const uint HAS_GATE = 2;
static const uint HAS_RESIDUAL = 4;

CONSTANTS(Constants);
ByteAddressBuffer x : register(t0);
ByteAddressBuffer weight : register(t1);
ByteAddressBuffer bias : register(t2);
ByteAddressBuffer gate : register(t3);
ByteAddressBuffer residual : register(t4);
RWByteAddressBuffer output : register(u0);

uint weight_row(uint row)
{
    return 16 * (row * constants.row_vectors);
}

// Columns 4 · vec … of row t.
float4 load_input(uint t, uint vec)
{
#if ODD_COLUMNS
    float4 values = 0;
    [unroll] for (uint i = 0; i < 4; i++)
        if (4 * vec + i < constants.columns)
            values[i] = load_float(x, t * constants.columns + 4 * vec + i);
    return values;
#else
    return asfloat(x.Load4(16 * (t * (constants.columns / 4) + vec)));
#endif
}

//     output = act(gate) · (y + bias) + residual
void store_output(float y, uint t, uint n)
{
    uint at = t * constants.outputs + n;
    if (constants.follows & HAS_BIAS)
        y += load_float(bias, n);
    if (constants.follows & HAS_GATE)
        y *= silu(load_float(gate, at));
    if (constants.follows & HAS_RESIDUAL)
        y += load_float(residual, at);
    output.Store(4 * at, asuint(y));
}
