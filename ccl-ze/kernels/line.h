// The three forms of a line. A form says how many work-items share a line, which words of it each of them handles, and
// how a work-item polls, takes and stores its piece; ring.inc does the rest.
//
// POLL_8/16/64 is the memory that a work-item polls; TAKE the piece it loads once the flag is there; PUT its store.
#ifndef CCL_LINE_H
#define CCL_LINE_H

// Words of data in a line, work-items to a line, most words of one work-item's piece.
#define PAYLOAD_8 1u
#define LANES_8 1u
#define PIECE_8 1u
#define PAYLOAD_16 3u
#define LANES_16 1u
#define PIECE_16 3u
#define PAYLOAD_64 15u
#define LANES_64 4u
#define PIECE_64 4u

// A piece, of which the first PIECE words count.
typedef uint4 piece;

// 8 bytes: flag and data come in one load.
typedef ulong polled_8;

static inline ulong poll_8(global const uchar *line)
{
    return poll_wide_word((global const ulong *)line);
}

static inline uint flag_8(ulong polled)
{
    return (uint)(polled >> 32);
}

static inline piece take_8(global const uchar *line, uint lane, ulong polled)
{
    return (piece)((uint)polled, 0, 0, 0);
}

static inline void put_8(global uchar *line, uint lane, piece words, uint tag)
{
    store_line_8((global uint2 *)line, (uint2)(words.x, tag));
}

// 16 bytes.
#ifdef MUTANT_VECTOR_POLL
typedef uint4 polled_16;

static inline uint4 poll_16(global const uchar *line)
{
    return load_line_16((global const uint4 *)line);
}

static inline uint flag_16(uint4 polled)
{
    return polled.w;
}

static inline piece take_16(global const uchar *line, uint lane, uint4 polled)
{
    return polled;
}
#else
typedef uint polled_16;

static inline uint poll_16(global const uchar *line)
{
    return poll_word((global const uint *)line + 3);
}

static inline uint flag_16(uint polled)
{
    return polled;
}

static inline piece take_16(global const uchar *line, uint lane, uint polled)
{
    return load_line_16((global const uint4 *)line);
}
#endif

static inline void put_16(global uchar *line, uint lane, piece words, uint tag)
{
#ifdef MUTANT_FLAG_FIRST
    // The same memory operations in the wrong order, with time between them for the receiver to be misled.
    store_word((global uint *)line + 3, tag);
    for (uint i = 0; i < 2000; i++)
        fence_before_telling_others();
#endif
    store_line_16((global uint4 *)line, (uint4)(words.xyz, tag));
}

// 64 bytes: four neighbours store 16 each, which the hardware sends as one line. All four poll its one flag.
typedef uint polled_64;

static inline uint poll_64(global const uchar *line)
{
    return poll_word((global const uint *)line + 15);
}

static inline uint flag_64(uint polled)
{
    return polled;
}

static inline piece take_64(global const uchar *line, uint lane, uint polled)
{
    return load_line_16((global const uint4 *)line + lane);
}

static inline void put_64(global uchar *line, uint lane, piece words, uint tag)
{
    store_line_16((global uint4 *)line + lane, (uint4)(words.xyz, lane == 3 ? tag : words.w));
}

// Where work-items share a line, none may run ahead of its neighbours: the whole sub-group waits until all of it has
// seen its flags, so its stores go out together, and a sub-group that a CPU executes one work-item at a time can't
// wait for a flag that a later work-item of its peer has yet to store. Otherwise each work-item waits for itself.
#define ALL_8(condition) (condition)
#define ANY_8(condition) (condition)
#define ALL_16(condition) (condition)
#define ANY_16(condition) (condition)
#define ALL_64(condition) (sub_group_all(condition) != 0)
#define ANY_64(condition) (sub_group_any(condition) != 0)

#endif
