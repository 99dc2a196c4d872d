// What the parts of linear_vec share: constants, views, groupshared memory, columns of x.

struct Constants
{
    uint tokens;         // T
    uint outputs;        // N
    uint columns;        // K
    uint chunks;         // of a row of weights
    uint row_vectors;    // 16-byte words of a row of weights
    uint lanes;          // of a team
    uint follows;        // the bits below
    uint output_stride;  // elements from a row of the output to the next
    float eps;
};
static const uint HAS_NORM = 1;
static const uint HAS_BIAS = 2;
static const uint HAS_UP_BIAS = 4;
static const uint HAS_GATE = 4;
static const uint HAS_RESIDUAL = 8;

CONSTANTS(Constants);
#if ODD_COLUMNS
#define Columns ByteAddressBuffer
#else
#define Columns StructuredBuffer<float4>
#endif
Columns x : register(t0);
Columns norm : register(t1);
StructuredBuffer<uint4> weight : register(t2);
ByteAddressBuffer bias : register(t3);
#if GATED
StructuredBuffer<uint4> up_weight : register(t4);
ByteAddressBuffer up_bias : register(t5);
#else
ByteAddressBuffer gate : register(t4);
ByteAddressBuffer residual : register(t5);
#endif
#if WEIGHT_KIND == 3
ByteAddressBuffer weight_bytes : register(t6);
#if GATED
ByteAddressBuffer up_weight_bytes : register(t7);
#endif
#endif
RWByteAddressBuffer output : register(u0);

static const uint THREADS = 128;
static const uint PRODUCTS = ROWS * (1 + GATED);  // of a row of x
static const uint SUMS = TOKENS * PRODUCTS;
// The threads' sums at the end, four of them in an element: squares of x first.
static const uint SQUARE_PLACES = (TOKENS + 3) / 4;
static const uint PLACES = SQUARE_PLACES + (SUMS + 3) / 4;

#if TOKENS == 1
static const uint TILE_VECTORS = 0;
#else
static const uint TILE_VECTORS = 512 / TOKENS;
static const uint TILE_UNITS = TILE_VECTORS / UNIT_VECTORS;
#if WEIGHT_KIND == 3
static const uint GROUP_VECTORS = UNIT_VECTORS / GROUPS;
#else
static const uint GROUP_VECTORS = UNIT_VECTORS;
#endif
static const uint TILE_GROUPS = TILE_VECTORS / GROUP_VECTORS;
#endif
static const uint SCRATCH =
    PLACES * THREADS > TOKENS * TILE_VECTORS ? PLACES * THREADS : TOKENS * TILE_VECTORS;

// x as [t][vector of a unit][unit]; at the end, the sums as [place][thread].
groupshared float4 scratch[SCRATCH];
#if TOKENS > 1 && WEIGHT_KIND == 3
groupshared float group_inputs[TOKENS * TILE_GROUPS];
#endif

// Columns 4 · vec … of a row that starts at element `first`.
float4 load_columns(Columns buffer, uint first, uint vec)
{
#if ODD_COLUMNS
    float4 values = 0;
    [unroll] for (uint i = 0; i < 4; i++)
        if (4 * vec + i < constants.columns)
            values[i] = load_float(buffer, first + 4 * vec + i);
    return values;
#else
    return buffer[first / 4 + vec];
#endif
}
