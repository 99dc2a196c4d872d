// Floats as integers that order alike: larger is larger, +0 and -0 are equal, every NaN is above
// all. Comparing integers keeps denormal numbers apart where a GPU's float comparison does not.

static const uint KEY_OF_INFINITY = 0xff800000;
static const uint KEY_OF_MINUS_INFINITY = 0x007fffff;
static const uint KEY_OF_NAN = 0xffffffff;

uint key_of_bits(uint bits)
{
    if ((bits & 0x7fffffff) > 0x7f800000)
        return KEY_OF_NAN;
    if (bits == 0x80000000)
        bits = 0;
    return bits & 0x80000000 ? ~bits : bits | 0x80000000;
}

uint bits_of_key(uint key)
{
    return key & 0x80000000 ? key & 0x7fffffff : ~key;
}

// Whether (key, index) a comes before b: larger, or equal and of lower index.
bool comes_before(uint2 a, uint2 b)
{
    return a.x > b.x || (a.x == b.x && a.y < b.y);
}
