/* SPDX-License-Identifier: Apache-2.0
 *
 * Nodes of a pool of regular expressions, shared by the rx_*.c files.
 *
 * Nodes are interned: the same operation on the same operands has the same id. OR and AND keep their operands (sorted
 * by id) and SET its 256 bits in the pool's words.
 */
#ifndef ENGINE_GRAMMAR_RX_PRIV_H
#define ENGINE_GRAMMAR_RX_PRIV_H

#include "base/err.h"
#include "engine/grammar/rx.h"

enum rx_op {
	OP_NONE,
	OP_EPS,
	OP_ALL,
	OP_SET,    /* a: words, b: 8 */
	OP_CAT,    /* a, b; a is not a CAT */
	OP_OR,     /* a: words, b: the number of operands */
	OP_AND,    /* a: words, b: the number of operands */
	OP_NOT,    /* a */
	OP_REPEAT, /* a; b to c copies */
	OP_JSON,   /* a: the language of the decoded rest; kind: json_phase; c: its value */
};

enum {
	RX_NULLABLE = 1,
	/* It is not empty, and its derivatives are empty only if they are RX_NONE, so no search is needed. */
	RX_SURE = 2,
	/* Valid UTF-8 that is a prefix of one of its strings is a prefix of a string that is valid UTF-8. */
	RX_UTF8 = 4,
	/* It has every plain character, or lacks one (rx_cover.c); neither bit: unknown. */
	RX_CHAR_YES = 8,
	RX_CHAR_NO = 16,
	RX_FINITE = 32, /* known to have no string longer than some bound */
	RX_LIVE = 64,   /* known to have a string */
};

/* Positions inside the spelling of a character. */
enum json_phase {
	JSON_START,  /* between characters */
	JSON_UTF8,   /* inside a character; value: utf8_phase */
	JSON_ESC,    /* after a backslash */
	JSON_HEX,    /* after \u; value: digits so far << 16 | their value */
	JSON_HI,     /* after a high surrogate; value: its lower 10 bits */
	JSON_HI_ESC, /* and the backslash after it */
	JSON_HI_HEX, /* and the u; value: high << 20 | digits << 16 | their value */
};

struct rx_node {
	uint8_t op, flags;
	uint16_t kind;
	uint32_t a, b, c;
};

/* How many characters its strings have (rx_length.c). need: the largest minimum of any derivative. dense: all numbers
 * between occur. Unknown for intersections and complements. */
struct rx_length {
	uint32_t least, most, need;
	bool seen, known, dense;
};

enum rx_life { RX_LIFE_UNKNOWN, RX_ALIVE, RX_DEAD };

struct rx_memo {
	rx of, is;
	uint32_t byte;
	struct rx_set set;
};

struct rx_pool {
	struct rx_node *nodes;
	uint32_t n, cap, max;
	uint32_t *words;
	size_t n_words, cap_words;
	uint32_t *table; /* ids by content; open addressed, 0: free */
	uint32_t table_mask;
	struct rx_memo *memo;
	uint32_t *scratch; /* a stack of lists under construction */
	size_t n_scratch, cap_scratch;
	uint64_t work, max_work; /* derivations */
	uint64_t pause;          /* work at which SL_EAGAIN interrupts a mask */
	uint32_t n_filled;       /* classes of bytes derived for states since the mask was continued (rx_dfa.c) */
	uint32_t depth;
	rx any_char;      /* every UTF-8 character, once built */
	rx optional_char; /* the same or nothing; likewise */
	struct rx_length *lengths;
	uint32_t n_lengths;
	int fault;
};

static inline const struct rx_node *rx_at(const struct rx_pool *p, rx a) { return &p->nodes[a]; }
static inline const uint32_t *rx_kids(const struct rx_pool *p, const struct rx_node *n) { return p->words + n->a; }
static inline bool rx_has(const struct rx_pool *p, rx a, uint8_t flag) { return (p->nodes[a].flags & flag) != 0; }

/* ---- sets of bytes ---- */

static inline bool set_has(const struct rx_set *s, unsigned b) { return (s->bits[b >> 6] >> (b & 63) & 1) != 0; }
static inline void set_add(struct rx_set *s, unsigned b) { s->bits[b >> 6] |= (uint64_t)1 << (b & 63); }
static inline void set_remove(struct rx_set *s, unsigned b) { s->bits[b >> 6] &= ~((uint64_t)1 << (b & 63)); }
static inline void set_and(struct rx_set *s, const struct rx_set *o)
{
	for (int i = 0; i < 4; i++)
		s->bits[i] &= o->bits[i];
}
static inline void set_or(struct rx_set *s, const struct rx_set *o)
{
	for (int i = 0; i < 4; i++)
		s->bits[i] |= o->bits[i];
}
static inline void set_not(struct rx_set *s)
{
	for (int i = 0; i < 4; i++)
		s->bits[i] = ~s->bits[i];
}
static inline bool set_empty(const struct rx_set *s)
{
	return (s->bits[0] | s->bits[1] | s->bits[2] | s->bits[3]) == 0;
}
static inline void set_add_range(struct rx_set *s, unsigned from, unsigned to)
{
	for (unsigned b = from; b <= to; b++)
		set_add(s, b);
}
static inline struct rx_set set_all(void) { return (struct rx_set){{~0ull, ~0ull, ~0ull, ~0ull}}; }

/* ---- nodes ---- */

/* Interns a node; its operands (n words) are copied. RX_NONE and a fault on shortage. */
rx rx_intern(struct rx_pool *p, struct rx_node node, const uint32_t *words, uint32_t n);
rx rx_fail(struct rx_pool *p, int code);
/* Marks properties of a's language. */
rx rx_mark(struct rx_pool *p, rx a, unsigned flags);
/* Pushes onto a stack of ids. False on a shortage. */
bool rx_push(struct rx_pool *p, uint32_t word);

/* Marks the operands of marked nodes, and the initial nodes. Then packs the marked nodes: ids[old] is the new id, or
 * UINT32_MAX for a dropped node. */
void rx_mark_kept(const struct rx_pool *p, uint32_t *marks);
void rx_pack(struct rx_pool *p, const uint32_t *ids);
/* The union of the list on the scratch stack from base on, which is popped. */
rx rx_or_top(struct rx_pool *p, size_t base);
/* The same for their intersection. */
rx rx_and_top(struct rx_pool *p, size_t base);
/* The derivative by byte; *set: bytes that have the same derivative (byte is one of them). */
rx rx_derive_set(struct rx_pool *p, rx a, uint8_t byte, struct rx_set *set);
struct rx_length rx_length(struct rx_pool *p, rx a);
/* Is a the language of all texts of least to most characters? */
bool rx_any_of_length(struct rx_pool *p, rx a, uint32_t *least, uint32_t *most);
/* Does an intersection have a string? Only as far as lengths decide. */
enum rx_life rx_and_life(struct rx_pool *p, size_t base, size_t n);
/* How many plain characters a certainly accepts; RX_UNBOUNDED: any number. */
uint32_t rx_cover(struct rx_pool *p, rx a);
/* Does a accept exactly the plain texts of at most *most characters, and longer ones only after another byte? */
bool rx_is_plain_bound(struct rx_pool *p, rx a, uint32_t *most);
/* Is a known to exclude finitely many strings only? */
bool rx_is_cofinite(struct rx_pool *p, rx a);
/* a with unlimited counters at its head in place of those that n bytes cannot exhaust: both accept the same n bytes. a
 * itself if there are none. */
rx rx_relax(struct rx_pool *p, rx a, uint32_t n);
/* The lowest bound of those counters that is at least n; RX_UNBOUNDED: none. */
uint32_t rx_bound(struct rx_pool *p, rx a, uint32_t n);
rx rx_json_node(struct rx_pool *p, rx a, enum json_phase phase, uint32_t value);
/* The texts that a JSON node's strings decode to; of an unfinished character, its remaining bytes. Empty if and only if
 * the node is. */
rx rx_json_text(struct rx_pool *p, rx a);
/* Inside a character: the node after one of the characters that it may become. RX_NONE: it has no strings, or none is
 * known. */
rx rx_json_sample(struct rx_pool *p, rx a);
rx rx_json_derive(struct rx_pool *p, rx a, uint8_t byte, struct rx_set *set);

#endif
