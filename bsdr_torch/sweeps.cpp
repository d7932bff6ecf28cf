// The soft-Bellman sweep and its adjoint on tables [S, B], humans in the minor dimension; see sweeps.py, whose torch
// code is the twin of what is here.
//
// Work goes in tiles of as many numbers as a vector register holds: that many humans of one state or, where there are
// fewer humans, several states. All arithmetic is on whole tiles; loads and stores know which lanes are in use.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

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

// What exp and log need to know of a floating-point type.
template <typename T>
struct Format;
template <>
struct Format<float> {
    static constexpr int fraction_bits = 23, exp_degree = 7, log_terms = 5;
    static constexpr std::int32_t sqrt_half = 0x3F3504F3;
    static constexpr float shift = 12582912.0f + 127;  // 1.5 * 2^23 + bias
    static constexpr float lowest = -87.0f;            // exp is a normal number from here on
    static constexpr float ln2_high = 0.693359375f, ln2_low = -2.1219444005e-4f;  // n * ln2_high is exact
};
template <>
struct Format<double> {
    static constexpr int fraction_bits = 52, exp_degree = 13, log_terms = 11;
    static constexpr std::int64_t sqrt_half = 0x3FE6A09E667F3BCD;
    static constexpr double shift = 6755399441055744.0 + 1023;
    static constexpr double lowest = -708.0;
    static constexpr double ln2_high = 0.693147180369123816490, ln2_low = 1.90821492927058770002e-10;
};

template <typename T>
constexpr T inverse_factorial(int n) {
    return n == 0 ? T(1) : T(inverse_factorial<double>(n - 1) / n);
}

// exp(x) for x <= 0. With x = n ln 2 + r and |r| <= ln(2)/2 it is 2^n times the Taylor polynomial of exp(r), whose
// remainder is below 6e-9 (degree 7, float) and 5e-18 (degree 13, double) of the result: less than rounding. What would
// be smaller than about 1e-38 (1e-308) is set to that, beside a sum that is at least 1.
template <typename T>
inline Tile<T> exp_nonpositive(Tile<T> x) {
    using F = Format<T>;
    const Tile<T> bounded = x > F::lowest ? x : F::lowest + Tile<T>{};
    const Tile<T> shifted = bounded * T(1.44269504088896340736) + F::shift;  // its last bits are n + bias, rounded
    const Tile<T> n = shifted - F::shift;
    const Tile<T> r = bounded - n * F::ln2_high - n * F::ln2_low;
    Tile<T> sum = inverse_factorial<T>(F::exp_degree) + Tile<T>{};
#pragma GCC unroll 16
    for (int i = F::exp_degree - 1; i >= 0; --i) sum = sum * r + inverse_factorial<T>(i);
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

// A tile: `rows` states from s on, `cols` humans from b on; full if they are as many humans as there are lanes.
struct Place {
    std::int64_t s, b;
    int rows, cols;
};

// Calls worker.tile<full>(place) for all tiles, in any order; each thread works with its own copy of the worker.
template <typename T, typename Worker>
void for_tiles(const Problem& p, const Worker& prototype) {
    if (p.B == 0) return;
    const int rows = p.B >= LANES<T> ? 1 : int(LANES<T> / p.B);
    const std::int64_t groups = (p.S + rows - 1) / rows;
    // Starting threads costs as much as a few thousand numbers.
#pragma omp parallel num_threads(int(p.threads)) if (p.threads > 1 && p.S * p.B > 4096)
    {
        Worker worker = prototype;
#pragma omp for schedule(static)
        for (std::int64_t group = 0; group < groups; ++group)
            for (std::int64_t b = 0; b < p.B; b += LANES<T>) {
                const std::int64_t s = group * rows;
                const Place at{s, b, int(std::min<std::int64_t>(rows, p.S - s)),
                               int(std::min<std::int64_t>(LANES<T>, p.B - b))};
                if (at.cols == LANES<T>)
                    worker.template tile<true>(at);
                else
                    worker.template tile<false>(at);
            }
    }
}

// Reads or writes the lanes of a tile; `row(i)` is where the numbers of its i-th state begin.
template <typename T, bool Full, typename Row>
inline Tile<T> load(const Place& at, const Row& row) {
    Tile<T> tile;
    if (Full) {
        std::memcpy(&tile, row(0), WIDTH);
    } else {
        T lane[LANES<T>] = {};
        for (int i = 0; i < at.rows; ++i)
            for (int j = 0; j < at.cols; ++j) lane[i * at.cols + j] = row(i)[j];
        std::memcpy(&tile, lane, WIDTH);
    }
    return tile;
}

template <typename T, bool Full, typename Row>
inline void store(const Place& at, const Tile<T>& tile, const Row& row) {
    if (Full) {
        std::memcpy(row(0), &tile, WIDTH);
    } else {
        T lane[LANES<T>];
        std::memcpy(lane, &tile, WIDTH);
        for (int i = 0; i < at.rows; ++i)
            for (int j = 0; j < at.cols; ++j) row(i)[j] = lane[i * at.cols + j];
    }
}

// The same number for all humans of a state.
template <typename T, bool Full, typename Number>
inline Tile<T> spread(const Place& at, const Number& number) {
    Tile<T> tile = number(0) + Tile<T>{};
    if (!Full && at.rows > 1) {
        T lane[LANES<T>] = {};
        for (int i = 0; i < at.rows; ++i) std::fill_n(lane + i * at.cols, at.cols, number(i));
        std::memcpy(&tile, lane, WIDTH);
    }
    return tile;
}

// q[a] = discount * E[V(s')] + action term, and stay = discount * E[V(s'_STAY)] if people pause.
template <typename T, bool Full>
inline void action_values(const Problem& p, const Place& at, const T* values, Tile<T>* q, Tile<T>& stay) {
    const std::int32_t* next = p.next_state + at.s * p.A * p.K;
    const std::int64_t A = p.A, K = p.K, B = p.B;
    const T discount = T(p.discount);
    values += at.b;
    if (p.probability == nullptr) {
        for (std::int64_t a = 0; a < A; ++a)
            q[a] = discount * load<T, Full>(at, [=](int i) { return values + next[i * A + a] * B; });
    } else {
        const bool shared = p.action_stride == 0;
        const T* chance = static_cast<const T*>(p.probability) + at.s * (shared ? K : A * K);
        for (std::int64_t a = 0; a < A; ++a) {
            Tile<T> sum{};
            for (std::int64_t k = 0; k < K; ++k)
                sum += spread<T, Full>(at, [=](int i) { return chance[shared ? i * K + k : (i * A + a) * K + k]; }) *
                       load<T, Full>(at, [=](int i) { return values + next[(i * A + a) * K + k] * B; });
            q[a] = discount * sum;
        }
    }
    if (p.pause != nullptr) stay = q[p.stay];
    if (p.action_term != nullptr) {
        const std::int64_t* stride = p.term_stride;
        const T* term = static_cast<const T*>(p.action_term) + at.s * stride[0] + at.b * stride[2];
        for (std::int64_t a = 0; a < A; ++a) {
            const auto row = [=](int i) { return term + i * stride[0] + a * stride[1]; };
            q[a] += stride[2] == 0 ? spread<T, Full>(at, [=](int i) { return *row(i); }) : load<T, Full>(at, row);
        }
    }
}

// Turns q[a] into exp(q[a] - top), where top = max_a q[a], and sums over a.
template <typename T>
inline void exponentiate(std::int64_t A, Tile<T>* q, Tile<T>& top, Tile<T>& total) {
    top = q[0];
    for (std::int64_t a = 1; a < A; ++a) top = q[a] > top ? q[a] : top;
    total = Tile<T>{};
    for (std::int64_t a = 0; a < A; ++a) total += q[a] = exp_nonpositive<T>(q[a] - top);
}

// V(s) = r(s) + log sum_a exp q(a); r(s) alone where the trajectory ends.
template <typename T>
struct Sweep {
    const Problem& p;
    const T* reward;
    const T* values;
    T* out;
    std::vector<Tile<T>> q;

    template <bool Full>
    void tile(const Place& at) {
        Tile<T> stay, top, total;
        action_values<T, Full>(p, at, values, q.data(), stay);
        exponentiate<T>(p.A, q.data(), top, total);
        Tile<T> future = top + log_at_least_one<T>(total);
        if (p.pause != nullptr) {
            const Tile<T> rho = load<T, Full>(at, [&](int) { return static_cast<const T*>(p.pause) + at.b; });
            future = rho * stay + (T(1) - rho) * future;
        }
        if (p.terminal != nullptr) future *= spread<T, Full>(at, [&](int i) { return T(!p.terminal[at.s + i]); });
        const std::int64_t first = at.s * p.B + at.b;
        const Tile<T> gain = load<T, Full>(at, [&](int i) { return reward + first + i * p.B; });
        store<T, Full>(at, gain + future, [&](int i) { return out + first + i * p.B; });
    }
};

// flow(s, a) = weight(s) pi(a|s): how much of the weight leaves each state by each action; nothing where it ends.
template <typename T>
struct Outflow {
    const Problem& p;
    const T* values;
    const T* weight;
    T* flow;
    std::vector<Tile<T>> q;

    template <bool Full>
    void tile(const Place& at) {
        Tile<T> stay, top, total;
        action_values<T, Full>(p, at, values, q.data(), stay);
        exponentiate<T>(p.A, q.data(), top, total);
        Tile<T> scale = load<T, Full>(at, [&](int i) { return weight + (at.s + i) * p.B + at.b; }) / total;
        if (p.terminal != nullptr) scale *= spread<T, Full>(at, [&](int i) { return T(!p.terminal[at.s + i]); });
        for (std::int64_t a = 0; a < p.A; ++a)
            store<T, Full>(at, q[a] * scale, [&](int i) { return flow + ((at.s + i) * p.A + a) * p.B + at.b; });
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

    template <bool Full>
    void tile(const Place& at) {
        const int cols = Full ? LANES<T> : at.cols;
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

}  // namespace

#define ENTRY_POINTS(T)                                                                                             \
    void sweep_##T(const Problem* p, const T* reward, const T* values, T* out) {                                   \
        for_tiles<T>(*p, Sweep<T>{*p, reward, values, out, std::vector<Tile<T>>(p->A)});                           \
    }                                                                                                              \
    void outflow_##T(const Problem* p, const T* values, const T* weight, T* flow) {                                \
        for_tiles<T>(*p, Outflow<T>{*p, values, weight, flow, std::vector<Tile<T>>(p->A)});                        \
    }                                                                                                              \
    void arrivals_##T(const Problem* p, const T* flow, const std::int64_t* offset, const std::int32_t* source,     \
                      const T* chance, T* out) {                                                                   \
        for_tiles<T>(*p, Arrivals<T>{*p, flow, offset, source, chance, out});                                      \
    }

extern "C" {
ENTRY_POINTS(float)
ENTRY_POINTS(double)
}
