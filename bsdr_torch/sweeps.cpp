// The soft-Bellman sweep and its adjoint on tables [S, B], humans in the minor dimension; see sweeps.py, whose torch
// code is the twin of what is here.
//
// Work goes in tiles of as many numbers as a vector register holds: that many humans of one state or, where there are
// fewer humans, several states. All arithmetic is on whole tiles; loads and stores know which lanes are in use.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>
#if defined(__SSE__)
#include <xmmintrin.h>
#endif

// Left to itself the compiler calls the work on a tile, which then loads its constants for every tile.
#define INLINE __attribute__((always_inline)) inline

namespace {

#if defined(__AVX512F__)
constexpr int WIDTH = 64;
#elif defined(__AVX__)
constexpr int WIDTH = 32;
#else
constexpr int WIDTH = 16;
#endif

// Vectors of GCC and Clang: operators work lane by lane. `Loose` is a vector anywhere in memory.
template <typename T>
struct Vector;
template <>
struct Vector<float> {
    typedef float Real __attribute__((vector_size(WIDTH)));
    typedef float Loose __attribute__((vector_size(WIDTH), aligned(alignof(float))));
    typedef std::int32_t Int __attribute__((vector_size(WIDTH)));
};
template <>
struct Vector<double> {
    typedef double Real __attribute__((vector_size(WIDTH)));
    typedef double Loose __attribute__((vector_size(WIDTH), aligned(alignof(double))));
    typedef std::int64_t Int __attribute__((vector_size(WIDTH)));
};
template <typename T>
using Tile = typename Vector<T>::Real;
template <typename T>
using Loose = typename Vector<T>::Loose;
template <typename T>
using Bits = typename Vector<T>::Int;
template <typename T>
constexpr int LANES = WIDTH / sizeof(T);

// What exp and log need to know of a floating-point type. `exp` are the coefficients, highest first, of the polynomial
// that equals exp(r) at the Chebyshev nodes of |r| <= ln(2)/2: within 2.6e-9 (float) and 4.3e-18 (double) of it.
template <typename T>
struct Format;
template <>
struct Format<float> {
    static constexpr int fraction_bits = 23, log_terms = 5;
    static constexpr std::int32_t sqrt_half = 0x3F3504F3;
    static constexpr float shift = 12582912.0f + 127;  // 1.5 * 2^23 + bias
    static constexpr float lowest = -87.0f;            // exp is a normal number from here on
    static constexpr float exp[] = {1.3941108433972675e-3f, 8.3751263981533357e-3f, 4.1666352896775157e-2f,
                                    1.6666415514653275e-1f, 5.0000000471177577e-1f, 1.0000000377162138f, 1.0f};
};
template <>
struct Format<double> {
    static constexpr int fraction_bits = 52, log_terms = 11;
    static constexpr std::int64_t sqrt_half = 0x3FE6A09E667F3BCD;
    static constexpr double shift = 6755399441055744.0 + 1023;
    static constexpr double lowest = -708.0;
    static constexpr double exp[] = {2.5110037605963777712e-8, 2.7632639639041029749e-7, 2.7557240918578969823e-6,
                                     2.4801485482328492419e-5, 1.9841269890047113707e-4, 1.3888888952314774652e-3,
                                     8.3333333333196006109e-3, 4.1666666666488095495e-2, 1.6666666666666680806e-1,
                                     5.0000000000000183855e-1, 1.0, 1.0};
};

// exp(x) for x <= 0, as 2^n exp(r) with x = n ln 2 + r. Its uses add up to at least 1, so the absolute error counts: it
// is at rounding level, and what is smaller than about 1e-38 (1e-308) is set to that.
template <typename T>
inline Tile<T> exp_nonpositive(Tile<T> x) {
    using F = Format<T>;
    const Tile<T> lowest = F::lowest + Tile<T>{};
    const Tile<T> bounded = x > lowest ? x : lowest;
    const Tile<T> shifted = bounded * T(1.44269504088896340736) + F::shift;  // its last bits are n + bias, rounded
    const Tile<T> r = bounded - (shifted - F::shift) * T(0.69314718055994530942);
    Tile<T> sum = F::exp[0] + Tile<T>{};
    constexpr int degree = sizeof(F::exp) / sizeof(T) - 1;
#pragma GCC unroll 16
    for (int i = 1; i <= degree; ++i) sum = sum * r + F::exp[i];
    return sum * (Tile<T>)((Bits<T>)shifted << F::fraction_bits);
}

// log(x) for x >= 1. With x = 2^k m, m within a factor sqrt(2) of 1 and f = (m - 1) / (m + 1), |f| <= 0.172, it is
// k ln 2 + 2 (f + f^3/3 + f^5/5 + ...), cut off where the rest is below 1e-9 (float) and 1e-17 (double).
template <typename T>
inline Tile<T> log_at_least_one(Tile<T> x) {
    using F = Format<T>;
    const Bits<T> k = ((Bits<T>)x - F::sqrt_half) >> F::fraction_bits;
    const Tile<T> m = (Tile<T>)((Bits<T>)x - (k << F::fraction_bits));
    const Tile<T> f = (m - T(1)) / (m + T(1)), g = f * f;
    Tile<T> sum = T(1.0 / (2 * F::log_terms - 1)) + Tile<T>{};
#pragma GCC unroll 16
    for (int i = F::log_terms - 2; i >= 0; --i) sum = sum * g + T(1.0 / (2 * i + 1));
    return T(2) * f * sum + __builtin_convertvector(k, Tile<T>) * T(0.69314718055994530942);
}

}  // namespace

// What every sweep of one problem shares. Mirrored by `_Problem` in native.py, field by field.
struct Problem {
    std::int64_t S, A, K, B, threads;
    const std::int32_t* next_state;  // [S, A, K]
    const void* probability;         // [S, A, K], or [S, 1, K] where action_stride is 0; null: K = 1, certain
    std::int64_t action_stride;      // of probability
    const std::uint8_t* terminal;    // [S] or null
    const void* action_term;         // [S, A, B] by its strides (0 where it is broadcast; the last is 0 or 1), or null
    std::int64_t term_stride[3];
    double discount;
    const void* pause;  // [B] or null: the probability of staying for no reason
    std::int64_t stay;  // the action a pause amounts to
};

namespace {

constexpr std::int64_t AHEAD = 2;

// A tile: `rows` states from s on, `cols` humans from b on.
struct Place {
    std::int64_t s, b;
    int rows, cols;
};

// The two common shapes of a tile, whose loops have a fixed length: all lanes are humans of one state, or states of one
// human. The rest: part of a row, or a few states of a few humans.
enum class Shape { ROW, COLUMN, REST };

// While it lives, this thread takes numbers below 1e-38 (1e-308) for zero. Visits far from the start get there, and
// arithmetic on such subnormal numbers is many times slower.
struct FlushSubnormals {
#if defined(__SSE__)
    const unsigned before = _mm_getcsr();
    FlushSubnormals() { _mm_setcsr(before | 0x8040); }
    ~FlushSubnormals() { _mm_setcsr(before); }
#endif
};

template <typename T>
int states_per_tile(const Problem& p) {
    return p.B >= LANES<T> ? 1 : int(LANES<T> / p.B);
}

// Calls work(begin, end) for the states of each thread, which are whole tiles.
template <typename T, typename Work>
void for_parts(const Problem& p, const Work& work) {
    if (p.B == 0) return;
    // Threads wait for each other at the end of a sweep: where a sweep takes a tenth of a millisecond it does not pay, and
    // on a machine that others use it costs far more than it saves.
    const std::int64_t parts = p.S * p.B >= 65536 ? p.threads : 1;
    const std::int64_t rows = states_per_tile<T>(p), groups = (p.S + rows - 1) / rows;
#pragma omp parallel for num_threads(int(parts)) schedule(static) if (parts > 1)
    for (std::int64_t part = 0; part < parts; ++part) {
        const FlushSubnormals flush;
        work(groups * part / parts * rows, std::min(p.S, groups * (part + 1) / parts * rows));
    }
}

// Calls worker.tile<shape>(place) for the tiles of the states from `begin` to before `end`, in order.
template <typename T, typename Worker>
void for_tiles(const Problem& p, Worker& worker, std::int64_t begin, std::int64_t end) {
    const std::int64_t B = p.B, rows = states_per_tile<T>(p);
    if (B % LANES<T> == 0) {  // a loop of its own, so that nothing but the common case is in it
        for (std::int64_t s = begin; s < end; ++s)
            for (std::int64_t b = 0; b < B; b += LANES<T>) worker.template tile<Shape::ROW>(Place{s, b, 1, LANES<T>});
        return;
    }
    for (std::int64_t s = begin; s < end; s += rows)
        for (std::int64_t b = 0; b < B; b += LANES<T>) {
            const Place at{s, b, int(std::min(rows, end - s)), int(std::min<std::int64_t>(LANES<T>, B - b))};
            if (at.cols == LANES<T>)
                worker.template tile<Shape::ROW>(at);
            else if (at.cols == 1 && at.rows == LANES<T>)
                worker.template tile<Shape::COLUMN>(at);
            else
                worker.template tile<Shape::REST>(at);
        }
}

// Reads or writes the lanes of a tile; `row(i)` is where the numbers of its i-th state begin.
template <typename T, Shape X, typename Row>
inline Tile<T> load(const Place& at, const Row& row) {
    if (X == Shape::ROW) return *reinterpret_cast<const Loose<T>*>(row(0));
    Tile<T> tile;
    T lane[LANES<T>] = {};
    if (X == Shape::COLUMN) {
        for (int i = 0; i < LANES<T>; ++i) lane[i] = *row(i);
    } else {
        for (int i = 0; i < at.rows; ++i) std::copy_n(row(i), at.cols, lane + i * at.cols);
    }
    std::memcpy(&tile, lane, WIDTH);
    return tile;
}

template <typename T, Shape X, typename Row>
inline void store(const Place& at, const Tile<T>& tile, const Row& row) {
    if (X == Shape::ROW) {
        *reinterpret_cast<Loose<T>*>(row(0)) = tile;
        return;
    }
    T lane[LANES<T>];
    std::memcpy(lane, &tile, WIDTH);
    if (X == Shape::COLUMN) {
        for (int i = 0; i < LANES<T>; ++i) *row(i) = lane[i];
    } else {
        for (int i = 0; i < at.rows; ++i) std::copy_n(lane + i * at.cols, at.cols, row(i));
    }
}

// By words and not by lanes: of that compilers make a few instructions.
template <typename T>
inline bool is_zero(const Tile<T>& tile) {
    std::int64_t words[WIDTH / sizeof(std::int64_t)], any = 0;
    std::memcpy(words, &tile, WIDTH);
    for (const std::int64_t word : words) any |= word;
    return any == 0;
}

// number(i) for all humans of the i-th state.
template <typename T, Shape X, typename Number>
inline Tile<T> spread(const Place& at, const Number& number) {
    if (X == Shape::ROW) return number(0) + Tile<T>{};
    Tile<T> tile;
    T lane[LANES<T>] = {};
    for (int i = 0; i < (X == Shape::COLUMN ? LANES<T> : at.rows); ++i)
        std::fill_n(lane + i * at.cols, X == Shape::COLUMN ? 1 : at.cols, number(i));
    std::memcpy(&tile, lane, WIDTH);
    return tile;
}

// From here on N is the number of actions where it is a common one, so that the tiles of all actions stay in registers,
// and 0 where it is any.

// q[a] = discount * E[V(s')] + action term, and stay = discount * E[V(s'_STAY)] if people pause.
template <typename T, Shape X, int N>
inline void action_values(const Problem& p, const Place& at, const T* values, Tile<T>* q, Tile<T>& stay) {
    const std::int64_t A = N > 0 ? N : p.A, K = p.K, B = p.B;
    const std::int32_t* next = p.next_state + at.s * A * K;
    const T discount = T(p.discount);
    values += at.b;
    if (p.probability == nullptr) {
        for (std::int64_t a = 0; a < A; ++a)
            q[a] = load<T, X>(at, [=](int i) { return values + next[i * A + a] * B; });
        if (discount != T(1))
            for (std::int64_t a = 0; a < A; ++a) q[a] *= discount;
    } else {
        // The rows of a later state are asked for now: there are too many for the processor to foresee.
        const std::int32_t* ahead = at.s + AHEAD < p.S ? next + AHEAD * A * K : next;
        const bool shared = p.action_stride == 0;
        const T* chance = static_cast<const T*>(p.probability) + at.s * (shared ? K : A * K);
        for (std::int64_t a = 0; a < A; ++a) {
            Tile<T> sum{};
            for (std::int64_t k = 0; k < K; ++k) {
                if (X == Shape::ROW) __builtin_prefetch(values + ahead[a * K + k] * B);
                sum += spread<T, X>(at, [=](int i) { return chance[shared ? i * K + k : (i * A + a) * K + k]; }) *
                       load<T, X>(at, [=](int i) { return values + next[(i * A + a) * K + k] * B; });
            }
            q[a] = discount * sum;
        }
    }
    if (p.pause != nullptr) stay = q[p.stay];
    if (p.action_term != nullptr) {
        const std::int64_t* stride = p.term_stride;
        const T* term = static_cast<const T*>(p.action_term) + at.s * stride[0] + at.b * stride[2];
        for (std::int64_t a = 0; a < A; ++a) {
            const auto row = [=](int i) { return term + i * stride[0] + a * stride[1]; };
            q[a] += stride[2] == 0 ? spread<T, X>(at, [=](int i) { return *row(i); }) : load<T, X>(at, row);
        }
    }
}

// Turns q[a] into exp(q[a] - top), where top = max_a q[a], and sums over a.
template <typename T, int N>
inline void exponentiate(const Problem& p, Tile<T>* q, Tile<T>& top, Tile<T>& total) {
    const std::int64_t A = N > 0 ? N : p.A;
    top = q[0];
    for (std::int64_t a = 1; a < A; ++a) top = q[a] > top ? q[a] : top;
    total = Tile<T>{};
    for (std::int64_t a = 0; a < A; ++a) total += q[a] = exp_nonpositive<T>(q[a] - top);
}

// 1 where the trajectory goes on, 0 where it ends.
template <typename T, Shape X>
inline Tile<T> going_on(const Problem& p, const Place& at) {
    if (p.terminal == nullptr) return T(1) + Tile<T>{};
    return spread<T, X>(at, [&](int i) { return T(!p.terminal[at.s + i]); });
}

// V(s) = r(s) + log sum_a exp q(a); r(s) alone where the trajectory ends.
template <typename T, int N>
struct Sweep {
    const Problem& p;
    const T* reward;
    const T* values;
    T* out;
    std::vector<Tile<T>> scratch;

    template <Shape X>
    INLINE void tile(const Place& at) {
        Tile<T> stay, top, total, fixed[N + 1];
        Tile<T>* q = N > 0 ? fixed : scratch.data();
        action_values<T, X, N>(p, at, values, q, stay);
        exponentiate<T, N>(p, q, top, total);
        Tile<T> future = top + log_at_least_one<T>(total);
        if (p.pause != nullptr) {
            const Tile<T> rho = load<T, X>(at, [&](int) { return static_cast<const T*>(p.pause) + at.b; });
            future = rho * stay + (T(1) - rho) * future;
        }
        if (p.terminal != nullptr) future *= going_on<T, X>(p, at);
        const std::int64_t first = at.s * p.B + at.b;
        const Tile<T> gain = load<T, X>(at, [&](int i) { return reward + first + i * p.B; });
        store<T, X>(at, gain + future, [&](int i) { return out + first + i * p.B; });
    }
};

// flow[a] = weight pi(a|s).
template <typename T, Shape X, int N>
inline void leave(const Problem& p, const Place& at, const T* values, const Tile<T>& weight, Tile<T>* flow) {
    Tile<T> stay, top, total;
    action_values<T, X, N>(p, at, values, flow, stay);
    exponentiate<T, N>(p, flow, top, total);
    const Tile<T> scale = weight / total;
    for (std::int64_t a = 0; a < (N > 0 ? N : p.A); ++a) flow[a] *= scale;
}

// flow(s, a) = weight(s) pi(a|s): how much of the weight leaves each state by each action; nothing where it ends.
template <typename T, int N>
struct Outflow {
    const Problem& p;
    const T* values;
    const T* weight;
    T* flow;
    std::vector<Tile<T>> scratch;

    template <Shape X>
    INLINE void tile(const Place& at) {
        Tile<T> fixed[N + 1];
        Tile<T>* leaving = N > 0 ? fixed : scratch.data();
        const Tile<T> here = load<T, X>(at, [&](int i) { return weight + (at.s + i) * p.B + at.b; });
        leave<T, X, N>(p, at, values, here * going_on<T, X>(p, at), leaving);
        const std::int64_t A = N > 0 ? N : p.A;
        for (std::int64_t a = 0; a < A; ++a)
            store<T, X>(at, leaving[a], [&](int i) { return flow + ((at.s + i) * A + a) * p.B + at.b; });
    }
};

// One step of the adjoint: visits(s) += weight(s), and out(s') = what arrives in s' of the weight that leaves every s.
// It is Outflow and Arrivals in one pass, without a flow of size [S, A, B]. A thread writes to the states that are its own
// and looks at all sources within reach of them, in increasing order, so that the sums do not depend on the threads.
template <typename T, int N>
struct Advance {
    const Problem& p;
    const T* values;
    const T* weight;
    T* visits;
    T* out;
    std::int64_t reach;       // no action leads further away, in numbers of states
    std::int64_t begin, end;  // the states that are its own
    std::vector<Tile<T>> scratch;
    std::int64_t cleared = begin;

    template <Shape X>
    INLINE void tile(const Place& at) {
        // Not before anything can arrive, so that the row is still in the cache when it does.
        for (; cleared < std::min(end, at.s + at.rows + reach); ++cleared) std::fill_n(out + cleared * p.B, p.B, T(0));
        const std::int64_t first = at.s * p.B + at.b;
        Tile<T> leaving = load<T, X>(at, [&](int i) { return weight + first + i * p.B; });
        if (is_zero<T>(leaving)) return;  // nobody can be here at this time, which is common
        if (begin <= at.s && at.s < end) {
            const Tile<T> before = load<T, X>(at, [&](int i) { return visits + first + i * p.B; });
            store<T, X>(at, before + leaving, [&](int i) { return visits + first + i * p.B; });
        }
        leaving *= going_on<T, X>(p, at);
        Tile<T> fixed[N + 1], paused{};
        Tile<T>* flow = N > 0 ? fixed : scratch.data();
        if (p.pause != nullptr)
            paused = leaving * load<T, X>(at, [&](int) { return static_cast<const T*>(p.pause) + at.b; });
        leave<T, X, N>(p, at, values, leaving - paused, flow);
        if (p.pause != nullptr) flow[p.stay] += paused;
        const std::int64_t A = N > 0 ? N : p.A;
        for (int i = 0; i < (X == Shape::ROW ? 1 : at.rows); ++i)
            for (std::int64_t a = 0; a < A; ++a) arrive<X>(at, i, a, flow[a]);
    }

    // Adds what leaves the i-th state of a tile by an action to the rows it leads to.
    template <Shape X>
    INLINE void arrive(const Place& at, int i, std::int64_t a, const Tile<T>& flow) {
        const std::int64_t pair = (at.s + i) * p.A + a;
        const T discount = T(p.discount);
        if (p.probability == nullptr) return add<X>(at, i, p.next_state[pair], discount * flow);
        const T* chance = static_cast<const T*>(p.probability) + (p.action_stride == 0 ? at.s + i : pair) * p.K;
        for (std::int64_t k = 0; k < p.K; ++k)
            add<X>(at, i, p.next_state[pair * p.K + k], discount * chance[k] * flow);
    }

    template <Shape X>
    INLINE void add(const Place& at, int i, std::int64_t target, const Tile<T>& arriving) {
        if (target < begin || target >= end) return;
        T* row = out + target * p.B + at.b;
        if (X == Shape::ROW)
            *reinterpret_cast<Loose<T>*>(row) += arriving;
        else
            for (int j = 0; j < at.cols; ++j) row[j] += arriving[i * at.cols + j];
    }
};

// Where the flow arrives: each state sums over the (state, action) rows that lead to it, so that no two threads write to
// one place and the order of the sum does not depend on their number.
template <typename T>
struct Arrivals {
    const Problem& p;
    const T* flow;
    const std::int64_t* offset;  // [S + 1]: the edges into s are offset[s] .. offset[s + 1] - 1
    const std::int32_t* source;  // [E]: the row s * A + a of the flow they come from
    const T* chance;             // [E]: their probability, or null
    T* out;

    template <Shape X>
    INLINE void tile(const Place& at) {
        const int cols = X == Shape::ROW ? LANES<T> : X == Shape::COLUMN ? 1 : at.cols;
        for (std::int64_t s = at.s; s < at.s + at.rows; ++s) {
            alignas(WIDTH) T sum[LANES<T>] = {};
            for (std::int64_t e = offset[s]; e < offset[s + 1]; ++e) {
                const T* row = flow + source[e] * p.B + at.b;
                const T share = chance == nullptr ? T(1) : chance[e];
                for (int j = 0; j < cols; ++j) sum[j] += share * row[j];
            }
            for (int j = 0; j < cols; ++j) out[s * p.B + at.b + j] = sum[j] * T(p.discount);
        }
    }
};

// Calls use(N) with the number of actions as a constant: grids have five and kitchens six.
template <typename Use>
void with_actions(std::int64_t A, const Use& use) {
    if (A == 5)
        use(std::integral_constant<int, 5>{});
    else if (A == 6)
        use(std::integral_constant<int, 6>{});
    else
        use(std::integral_constant<int, 0>{});
}

template <typename T>
void sweep(const Problem& p, const T* reward, const T* values, T* out) {
    with_actions(p.A, [&](auto N) {
        for_parts<T>(p, [&](std::int64_t begin, std::int64_t end) {
            Sweep<T, N> worker{p, reward, values, out, std::vector<Tile<T>>(p.A)};
            for_tiles<T>(p, worker, begin, end);
        });
    });
}

template <typename T>
void outflow(const Problem& p, const T* values, const T* weight, T* flow) {
    with_actions(p.A, [&](auto N) {
        for_parts<T>(p, [&](std::int64_t begin, std::int64_t end) {
            Outflow<T, N> worker{p, values, weight, flow, std::vector<Tile<T>>(p.A)};
            for_tiles<T>(p, worker, begin, end);
        });
    });
}

template <typename T>
void arrivals(const Problem& p, const T* flow, const std::int64_t* offset, const std::int32_t* source, const T* chance,
              T* out) {
    for_parts<T>(p, [&](std::int64_t begin, std::int64_t end) {
        Arrivals<T> worker{p, flow, offset, source, chance, out};
        for_tiles<T>(p, worker, begin, end);
    });
}

template <typename T>
void advance(const Problem& p, const T* values, const T* weight, T* visits, T* out, std::int64_t reach) {
    const std::int64_t rows = states_per_tile<T>(p);
    with_actions(p.A, [&](auto N) {
        for_parts<T>(p, [&](std::int64_t begin, std::int64_t end) {
            Advance<T, N> worker{p, values, weight, visits, out, reach, begin, end, std::vector<Tile<T>>(p.A)};
            const std::int64_t first = std::max<std::int64_t>(0, begin - reach) / rows * rows;
            const std::int64_t last = (end + reach + rows - 1) / rows * rows;
            for_tiles<T>(p, worker, first, std::min(p.S, last));
        });
    });
}

}  // namespace

#define ENTRY_POINTS(T)                                                                                             \
    void sweep_##T(const Problem* p, const T* reward, const T* values, T* out) { sweep(*p, reward, values, out); } \
    void outflow_##T(const Problem* p, const T* values, const T* weight, T* flow) {                                \
        outflow(*p, values, weight, flow);                                                                         \
    }                                                                                                              \
    void arrivals_##T(const Problem* p, const T* flow, const std::int64_t* offset, const std::int32_t* source,     \
                      const T* chance, T* out) {                                                                   \
        arrivals(*p, flow, offset, source, chance, out);                                                           \
    }                                                                                                              \
    void advance_##T(const Problem* p, const T* values, const T* weight, T* visits, T* out, std::int64_t reach) {  \
        advance(*p, values, weight, visits, out, reach);                                                           \
    }

extern "C" {
ENTRY_POINTS(float)
ENTRY_POINTS(double)
}
