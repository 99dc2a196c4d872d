// The dot product of four signed bytes with four others. Shader model 6.4 has it; DXC has nothing
// for it in SPIR-V, where it is OpSDot of SPV_KHR_integer_dot_product.

#if SPIRV
[[vk::ext_capability(6018)]] [[vk::ext_capability(6019)]]
[[vk::ext_extension("SPV_KHR_integer_dot_product")]]
[[vk::ext_instruction(4450)]]
int packed_dot(uint a, uint b, [[vk::ext_literal]] uint format);

int add_dot(uint a, uint b, int sum)
{
    return packed_dot(a, b, 0) + sum;
}
#else
int add_dot(uint a, uint b, int sum)
{
    return dot4add_i8packed(a, b, sum);
}
#endif
