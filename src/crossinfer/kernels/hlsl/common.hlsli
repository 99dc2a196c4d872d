// What every shader uses: constants, and the group's number in a grid of two dimensions.

#if SPIRV
#define CONSTANTS(Type) [[vk::push_constant]] ConstantBuffer<Type> constants
#else
#define CONSTANTS(Type) ConstantBuffer<Type> constants : register(b0)
#endif

// Grids have at most 65535 groups an axis; longer ones are cut into lines of this many.
static const uint GRID_LINE = 32768;

uint group_number(uint3 group)
{
    return group.y * GRID_LINE + group.x;
}

float load_float(ByteAddressBuffer buffer, uint element)
{
    return asfloat(buffer.Load(4 * element));
}

// The low and the high half of a word, each a float16.
float2 halves(uint word)
{
    return float2(f16tof32(word), f16tof32(word >> 16));
}

uint pack_halves(float2 values)
{
    return f32tof16(values.x) | f32tof16(values.y) << 16;
}

// x · sigmoid(x); the exponential may overflow, which gives -0.
float silu(float x)
{
    return x / (1.0 + exp(-x));
}
