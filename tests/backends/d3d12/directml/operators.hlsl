// The operators of `fake_directml`, computed: a thread for each 32-bit word of a dense output.
//
//   kind 0   output = activation(a · b + c)     activation 0 none, 1 relu, 2 sigmoid, 3 tanh
//   kind 1   a + b        kind 2   a · b        kind 3   softmax of a's rows        kind 4   a
//
// Strides are in elements; `halves` has a bit for each of a, b, c, output that holds f16.

cbuffer Constants : register(b0)
{
    uint kind, rows, columns, inner;
    uint a_row, a_column, b_row, b_column;
    uint c_row, has_c, activation, halves;
};

RWByteAddressBuffer A : register(u0);
RWByteAddressBuffer B : register(u1);
RWByteAddressBuffer C : register(u2);
RWByteAddressBuffer Output : register(u3);

float load(RWByteAddressBuffer from, uint index, uint bit)
{
    if (!(halves & bit))
        return asfloat(from.Load(4 * index));
    uint word = from.Load(4 * (index / 2));
    return f16tof32(index & 1 ? word >> 16 : word & 0xffff);
}

float activate(float y)
{
    if (activation == 1)
        return max(y, 0.0);
    if (activation == 2)
        return 1.0 / (1.0 + exp(-y));
    return activation == 3 ? tanh(y) : y;
}

float element(uint index)
{
    uint row = index / columns, column = index % columns;
    float y = 0.0;
    if (kind == 0)
    {
        for (uint i = 0; i < inner; i++)
            y += load(A, row * a_row + i * a_column, 1) * load(B, i * b_row + column * b_column, 2);
        if (has_c)
            y += load(C, row * c_row + column, 4);
        return activate(y);
    }
    float x = load(A, row * a_row + column, 1);
    if (kind == 1)
        return x + load(B, row * b_row + column, 2);
    if (kind == 2)
        return x * load(B, row * b_row + column, 2);
    if (kind == 4)
        return x;
    for (uint n = 0; n < columns; n++)
        y += exp(load(A, row * a_row + n, 1) - x);
    return 1.0 / y;
}

[numthreads(64, 1, 1)]
void main(uint3 thread : SV_DispatchThreadID)
{
    uint count = rows * columns;
    if (!(halves & 8))
    {
        if (thread.x < count)
            Output.Store(4 * thread.x, asuint(element(thread.x)));
        return;
    }
    uint index = 2 * thread.x;
    if (index < count)
    {
        uint word = f32tof16(element(index));
        if (index + 1 < count)
            word |= f32tof16(element(index + 1)) << 16;
        Output.Store(2 * index, word);
    }
}
