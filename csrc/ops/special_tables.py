"""Prints special_tables.h: Chebyshev series of special functions, from mpmath at 50 digits."""
from fractions import Fraction

from mpmath import mp, mpf, cos, pi, exp, sqrt, log, erfc, besseli, besselk, besselj, bessely, findroot, airyai, airybi

mp.dps = 50
NODES = 80


def series(f):
    """Coefficients c of sum c[k] T_k(t), down to what float64 can see."""
    angles = [pi * (j + mpf(1) / 2) / NODES for j in range(NODES)]
    values = [f(cos(a)) for a in angles]
    c = [2 * sum(v * cos(k * a) for v, a in zip(values, angles)) / NODES for k in range(NODES)]
    c[0] /= 2
    size = max(abs(x) for x in c)
    while abs(c[-1]) < size * mpf(2) ** -56:
        c.pop()
    assert len(c) < NODES - 5, "the series does not converge"
    return c


def between(f, low, high):
    return lambda t: f((high - low) / mpf(2) * t + (high + low) / mpf(2))


def near(f):
    """In x^2 / 32 - 1, |x| <= 8."""
    return lambda t: f(sqrt(32 * (t + 1)))


def far(f, scale):
    """In 2 scale / x - 1, x >= scale."""
    return lambda t: f(2 * scale / (t + 1))


def waves(n, x):
    """P and Q of J_n and Y_n at x."""
    angle, size = x - (2 * n + 1) * pi / 4, sqrt(pi * x / 2)
    j, y = size * besselj(n, x), size * bessely(n, x)
    return j * cos(angle) + y * mp.sin(angle), y * cos(angle) - j * mp.sin(angle)


def in_square(f):
    """In 2 (8 / x)^2 - 1, x >= 8; f(x) or its limit."""
    return lambda t: f(8 / sqrt((t + 1) / 2))


def half(f):
    """In x^2 / 2 - 1, 0 < x <= 2."""
    return lambda t: f(sqrt(2 * (t + 1)))


LOW_P, HIGH_P = mpf(2) ** -1080, mpf("0.14")
R_LOW, R_HIGH = 1 / sqrt(-2 * log(LOW_P)), 1 / sqrt(-2 * log(HIGH_P))


def tail_quantile(r):
    """What is left of the quantile at p = exp(-s^2 / 2), s = 1 / r, over s and its logarithm."""
    s = 1 / r
    p = exp(-s * s / 2)
    y = findroot(lambda y: log(erfc(y / sqrt(mpf(2))) / 2) - log(p), s - log(s) / s)
    return (s - y) * s - log(s)


def airy_waves(zeta):
    """Ai and Bi at x < 0, as amplitudes of the sine and the cosine of zeta + pi/4, where zeta = 2/3 (-x)^(3/2)."""
    x = (mpf(3) / 2 * zeta) ** (mpf(2) / 3)
    angle, size = zeta + pi / 4, sqrt(pi) * x ** (mpf(1) / 4)
    a, b = airyai(-x) * size, airybi(-x) * size
    return a * mp.sin(angle) + b * cos(angle), (b * mp.sin(angle) - a * cos(angle)) * zeta


def airy_decay(zeta):
    x = (mpf(3) / 2 * zeta) ** (mpf(2) / 3)
    return airyai(x) * 2 * sqrt(pi) * x ** (mpf(1) / 4) * exp(zeta)


def root_over(mu):
    """eta / mu, where eta^2 / 2 = mu - log(1 + mu)."""
    return sqrt(2 * (mu - mp.log1p(mu))) / abs(mu) if mu else mpf(1)


def uniform_terms(rows, columns):
    """Temme's uniform expansion of the incomplete gamma functions: c[k][n] is the factor of eta^n / a^k (DLMF 8.12.10 and
    8.12.11). With m = sum m[i] eta^i for lambda - 1, from m m' = eta (1 + m)."""
    size = columns + 2 * rows + 2
    m = [Fraction(0), Fraction(1)]
    for i in range(2, size + 2):
        m.append((m[i - 1] - sum(m[j] * (i + 1 - j) * m[i + 1 - j] for j in range(2, i))) / (i + 1))
    r = [Fraction(1)]  # eta / m
    for i in range(1, size + 1):
        r.append(-sum(m[j + 1] * r[i - j] for j in range(1, i + 1)))
    c = [r[1:]]
    while len(c) < rows:
        last = c[-1]
        c.append([(n + 2) * last[n + 2] - last[1] * r[n + 1] for n in range(len(last) - 2)])
    return [row[:columns] for row in c]


TABLES = {
    "erfcx": (lambda t: mpf(1) / sqrt(pi) * 2 if t == 1 else
              (lambda x: exp(x * x) * erfc(x) * (1 + 2 * x))(2 * (1 + t) / (1 - t))),
    "ndtri": between(tail_quantile, R_LOW, R_HIGH),
    "i0e_near": between(lambda x: exp(-x) * besseli(0, x), 0, 8),
    "i0e_far": far(lambda x: exp(-x) * sqrt(x) * besseli(0, x), mpf(8)),
    "i1e_near": between(lambda x: exp(-x) * besseli(1, x) / x, 0, 8),
    "i1e_far": far(lambda x: exp(-x) * sqrt(x) * besseli(1, x), mpf(8)),
    "k0_near": half(lambda x: besselk(0, x) + log(x / 2) * besseli(0, x)),
    "k0_far": far(lambda x: exp(x) * sqrt(x) * besselk(0, x), mpf(2)),
    "k1_near": half(lambda x: x * (besselk(1, x) - log(x / 2) * besseli(1, x))),
    "k1_far": far(lambda x: exp(x) * sqrt(x) * besselk(1, x), mpf(2)),
    "j0_near": near(lambda x: besselj(0, x)),
    "j1_near": near(lambda x: besselj(1, x) / x),
    "y0_near": near(lambda x: bessely(0, x) - 2 / pi * log(x) * besselj(0, x)),
    "y1_near": near(lambda x: (bessely(1, x) - 2 / pi * (log(x) * besselj(1, x) - 1 / x)) / x),
    "wave0_p": in_square(lambda x: waves(0, x)[0]),
    "wave0_q": in_square(lambda x: waves(0, x)[1] * x / 8),
    "wave1_p": in_square(lambda x: waves(1, x)[0]),
    "wave1_q": in_square(lambda x: waves(1, x)[1] * x / 8),
    "airy_near": between(airyai, -3, 2),
    "airy_decay": far(airy_decay, 2 * sqrt(mpf(8)) / 3),
    "airy_sine": far(lambda z: airy_waves(z)[0], 2 * sqrt(mpf(27)) / 3),
    "airy_cosine": far(lambda z: airy_waves(z)[1], 2 * sqrt(mpf(27)) / 3),
    "gamma_log": between(lambda a: mp.loggamma(1 + a) / a, 0, 2),
    "gamma_root": between(root_over, -mpf(3) / 10, mpf(3) / 10),
}

print("""/* Chebyshev series of special functions: made by special_tables.py, do not edit. */
#ifndef TT_OPS_SPECIAL_TABLES_H
#define TT_OPS_SPECIAL_TABLES_H

#define TT_TABLE(table) (int)(sizeof table / sizeof *table), table
#define TT_CHEBYSHEV(b, t, table) tt_chebyshev(b, t, TT_TABLE(table))
""")
number = lambda x: mp.nstr(x, 17, strip_zeros=False, min_fixed=0, max_fixed=0)
print(f"#define ndtri_center {number((R_LOW + R_HIGH) / 2)}")
print(f"#define ndtri_radius {number((R_HIGH - R_LOW) / 2)}\n")
for name, f in TABLES.items():
    c = [number(x) for x in series(f)]
    lines = [", ".join(c[i:i + 4]) for i in range(0, len(c), 4)]
    print(f"static const double {name}_table[] = {{")
    print(",\n".join("    " + line for line in lines) + "};\n")
ROWS, COLUMNS = 9, 18
print(f"enum {{ GAMMA_ROWS = {ROWS}, GAMMA_COLUMNS = {COLUMNS} }};")
print("static const double gamma_terms[GAMMA_ROWS][GAMMA_COLUMNS] = {")
for row in uniform_terms(ROWS, COLUMNS):
    c = [number(mpf(x.numerator) / x.denominator) for x in row]
    lines = [", ".join(c[i:i + 4]) for i in range(0, len(c), 4)]
    print("    {" + ",\n     ".join(lines) + "},")
print("};\n")
print("#endif")
