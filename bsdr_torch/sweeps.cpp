// The soft-Bellman sweep and its adjoint on tables [S, B], humans in the minor dimension; see sweeps.py, whose torch
// code is the twin of what is here.
//
// Work goes in tiles of as many numbers as a vector register holds: that many humans of one state or, where there are
// fewer humans, several states. All arithmetic is on whole tiles; loads and stores know which lanes are in use.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>
#if defined(__SSE__)
#include <xmmintrin.h>
#endif

namespace {

#if defined(__AVX512F__)
constexpr int WIDTH = 64;
#elif defined(__AVX__)
constexpr int WIDTH = 32;
#else
constexpr int WIDTH = 16;
#endif

// Vectors of GCC and Clang: operators work lane by lane.
template <typename T>
struct Vector;
template <>
struct Vector<float> {
    typedef float Real __attribute__((vector_size(WIDTH)));
    typedef std::int32_t Int __attribute__((vector_size(WIDTH)));
};
template <>
struct Vector<double> {
    typedef double Real __attribute__((vector_size(WIDTH)));
    typedef std::int64_t Int __attribute__((vector_size(WIDTH)));
};
template <typename T>
using Tile = typename Vector<T>::Real;
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
    const Tile<T> bounded = F::lowest < x ? x : F::lowest + Tile<T>{};
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

// Calls worker.tile<shape>(place) for all tiles, in any order; each thread works with its own copy of the worker.
template <typename T, typename Worker>
void for_tiles(const Problem& p, const Worker& prototype) {
    if (p.B == 0) return;
    const int rows = p.B >= LANES<T> ? 1 : int(LANES<T> / p.B);
    const std::int64_t groups = (p.S + rows - 1) / rows;
    // Threads wait for each other at the end of a sweep: where a sweep takes a tenth of a millisecond it does not pay, and
    // on a machine that others use it costs far more than it saves.
#pragma omp parallel num_threads(int(p.threads)) if (p.threads > 1 && p.S * p.B >= 65536)
    {
        const FlushSubnormals flush;
        Worker worker = prototype;
#pragma omp for schedule(static) nowait
        for (std::int64_t group = 0; group < groups; ++group)
            for (std::int64_t b = 0; b < p.B; b += LANES<T>) {
                const std::int64_t s = group * rows;
                const Place at{s, b, int(std::min<std::int64_t>(rows, p.S - s)),
                               int(std::min<std::int64_t>(LANES<T>, p.B - b))};
                if (at.cols == LANES<T>)
                    worker.template tile<Shape::ROW>(at);
                else if (at.cols == 1 && at.rows == LANES<T>)
                    worker.template tile<Shape::COLUMN>(at);
                else
                    worker.template tile<Shape::REST>(at);
            }
    }
}

// Reads or writes the lanes of a tile; `row(i)` is where the numbers of its i-th state begin.
template <typename T, Shape X, typename Row>
inline Tile<T> load(const Place& at, const Row& row) {
    Tile<T> tile;
    if (X == Shape::ROW) {
        std::memcpy(&tile, row(0), WIDTH);
        return tile;
    }
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
        std::memcpy(row(0), &tile, WIDTH);
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
            q[a] = discount * load<T, X>(at, [=](int i) { return values + next[i * A + a] * B; });
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

// V(s) = r(s) + log sum_a exp q(a); r(s) alone where the trajectory ends.
template <typename T, int N>
struct Sweep {
    const Problem& p;
    const T* reward;
    const T* values;
    T* out;
    std::vector<Tile<T>> scratch;

    template <Shape X>
    void tile(const Place& at) {
        Tile<T> stay, top, total, fixed[N + 1];
        Tile<T>* q = N > 0 ? fixed : scratch.data();
        action_values<T, X, N>(p, at, values, q, stay);
        exponentiate<T, N>(p, q, top, total);
        Tile<T> future = top + log_at_least_one<T>(total);
        if (p.pause != nullptr) {
            const Tile<T> rho = load<T, X>(at, [&](int) { return static_cast<const T*>(p.pause) + at.b; });
            future = rho * stay + (T(1) - rho) * future;
        }
        if (p.terminal != nullptr) future *= spread<T, X>(at, [&](int i) { return T(!p.terminal[at.s + i]); });
        const std::int64_t first = at.s * p.B + at.b;
        const Tile<T> gain = load<T, X>(at, [&](int i) { return reward + first + i * p.B; });
        store<T, X>(at, gain + future, [&](int i) { return out + first + i * p.B; });
    }
};

// flow(s, a) = weight(s) pi(a|s): how much of the weight leaves each state by each action; nothing where it ends.
template <typename T, int N>
struct Outflow {
    const Problem& p;
    const T* values;
    const T* weight;
    T* flow;
    std::vector<Tile<T>> scratch;

    template <Shape X>
    void tile(const Place& at) {
        Tile<T> stay, top, total, fixed[N + 1];
        Tile<T>* q = N > 0 ? fixed : scratch.data();
        action_values<T, X, N>(p, at, values, q, stay);
        exponentiate<T, N>(p, q, top, total);
        Tile<T> scale = load<T, X>(at, [&](int i) { return weight + (at.s + i) * p.B + at.b; }) / total;
        if (p.terminal != nullptr) scale *= spread<T, X>(at, [&](int i) { return T(!p.terminal[at.s + i]); });
        const std::int64_t A = N > 0 ? N : p.A;
        for (std::int64_t a = 0; a < A; ++a)
            store<T, X>(at, q[a] * scale, [&](int i) { return flow + ((at.s + i) * A + a) * p.B + at.b; });
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
    void tile(const Place& at) {
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

// Grids have five actions and kitchens six.
template <typename T>
void sweep(const Problem& p, const T* reward, const T* values, T* out) {
    if (p.A == 5)
        for_tiles<T>(p, Sweep<T, 5>{p, reward, values, out, {}});
    else if (p.A == 6)
        for_tiles<T>(p, Sweep<T, 6>{p, reward, values, out, {}});
    else
        for_tiles<T>(p, Sweep<T, 0>{p, reward, values, out, std::vector<Tile<T>>(p.A)});
}

template <typename T>
void outflow(const Problem& p, const T* values, const T* weight, T* flow) {
    if (p.A == 5)
        for_tiles<T>(p, Outflow<T, 5>{p, values, weight, flow, {}});
    else if (p.A == 6)
        for_tiles<T>(p, Outflow<T, 6>{p, values, weight, flow, {}});
    else
        for_tiles<T>(p, Outflow<T, 0>{p, values, weight, flow, std::vector<Tile<T>>(p.A)});
}

}  // namespace

#define ENTRY_POINTS(T)                                                                                             \
    void sweep_##T(const Problem* p, const T* reward, const T* values, T* out) { sweep(*p, reward, values, out); } \
    void outflow_##T(const Problem* p, const T* values, const T* weight, T* flow) {                                \
        outflow(*p, values, weight, flow);                                                                         \
    }                                                                                                              \
    void arrivals_##T(const Problem* p, const T* flow, const std::int64_t* offset, const std::int32_t* source,     \
                      const T* chance, T* out) {                                                                   \
        for_tiles<T>(*p, Arrivals<T>{*p, flow, offset, source, chance, out});                                      \
    }

extern "C" {
ENTRY_POINTS(float)
ENTRY_POINTS(double)
}
