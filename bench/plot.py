"""Draws lines in a plot with logarithmic axes as SVG."""

import html
import math

WIDTH, HEIGHT = 640, 360
LEFT, RIGHT, TOP, BOTTOM = 70, 170, 40, 45
# Distinct also for those who do not see red and green.
COLORS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#555555"]


def ticks(low, high):
    """Powers of ten, and of those 2 and 5 times if the range is short."""
    steps = [1] if math.log10(high / low) > 2.5 else [1, 2, 5]
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    found = [step * 10.0**power for power in range(first, last + 1) for step in steps]
    return [tick for tick in found if low * 0.999 <= tick <= high * 1.001]


def label(value):
    if value >= 1000:
        return f"{value:,.0f}".replace(",", " ")
    return f"{value:g}"


def svg(title, series):
    """`series`: a name -> points (x, y), both above zero."""
    points = [point for line in series.values() for point in line]
    if not points:
        points = [(1, 1)]
    xs, ys = [x for x, _ in points], [y for _, y in points]
    x_low, x_high = min(xs) / 1.15, max(xs) * 1.15
    y_low, y_high = min(ys) / 1.3, max(ys) * 1.3

    def place(value, low, high, start, end):
        return start + (math.log(value / low) / math.log(high / low)) * (end - start)

    def x_of(x):
        return place(x, x_low, x_high, LEFT, WIDTH - RIGHT)

    def y_of(y):
        return place(y, y_low, y_high, HEIGHT - BOTTOM, TOP)

    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}">']
    parts += ['<style>text{font:12px sans-serif;fill:#333}.t{font-size:14px;font-weight:bold}</style>']
    parts += [f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>', f'<text class="t" x="{LEFT}" y="22">{html.escape(title)}</text>']
    for y in ticks(y_low, y_high):
        at = y_of(y)
        parts += [f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}" stroke="#ddd"/>']
        parts += [f'<text x="{LEFT - 8}" y="{at + 4:.1f}" text-anchor="end">{label(y)}</text>']
    for x in sorted(set(xs)):
        at = x_of(x)
        parts += [f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}" stroke="#eee"/>']
        parts += [f'<text x="{at:.1f}" y="{HEIGHT - BOTTOM + 20}" text-anchor="middle">{label(x)}</text>']
    for place_in_legend, (name, line) in enumerate(series.items()):
        color = COLORS[place_in_legend % len(COLORS)]
        path = " ".join(f"{x_of(x):.1f},{y_of(y):.1f}" for x, y in line)
        parts += [f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="2"/>']
        parts += [f'<circle cx="{x_of(x):.1f}" cy="{y_of(y):.1f}" r="3.5" fill="{color}"/>' for x, y in line]
        at = TOP + 14 + 18 * place_in_legend
        parts += [f'<line x1="{WIDTH - RIGHT + 12}" x2="{WIDTH - RIGHT + 30}" y1="{at - 4}" y2="{at - 4}" stroke="{color}" stroke-width="2"/>']
        parts += [f'<text x="{WIDTH - RIGHT + 36}" y="{at}">{html.escape(name)}</text>']
    return "\n".join(parts + ["</svg>", ""])
