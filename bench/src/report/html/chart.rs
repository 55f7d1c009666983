//! Line charts over size, as SVG: both axes logarithmic, colours and strokes from the style sheet.

use maud::{Markup, html};

/// One line of a chart.
pub(super) struct Series {
    pub(super) label: String,
    /// Which colour and stroke of the style sheet.
    pub(super) style: usize,
    /// Size in bytes, and value; both above zero.
    pub(super) points: Vec<(f64, f64)>,
}

/// Styles in the style sheet.
const STYLES: usize = 8;
const WIDTH: f64 = 480.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 28.0;
const TOP: f64 = 16.0;
const BOTTOM: f64 = 40.0;

/// A logarithmic axis from one value to another, on a stretch of the picture.
struct Axis {
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

impl Axis {
    fn of(values: impl Iterator<Item = f64> + Clone, from: f64, to: f64) -> Self {
        let low = values.clone().fold(f64::INFINITY, f64::min);
        let high = values.fold(0.0, f64::max);
        // A single value would leave no stretch to divide by.
        if high > low {
            Self { low, high, from, to }
        } else {
            Self { low: low / 2.0, high: low * 2.0, from, to }
        }
    }

    fn at(&self, value: f64) -> f64 {
        let share = (value / self.low).ln() / (self.high / self.low).ln();
        self.from + share * (self.to - self.from)
    }

    /// About five values to write at the axis: powers of `base`, thinned out.
    fn ticks(&self, base: f64) -> Vec<f64> {
        let first = (self.low.ln() / base.ln() - 1e-9).ceil() as i32;
        let last = (self.high.ln() / base.ln() + 1e-9).floor() as i32;
        let every = ((last - first) / 5 + 1).max(1);
        let ticks: Vec<f64> =
            (first..=last).filter(|n| (n - first) % every == 0).map(|n| base.powi(n)).collect();
        if ticks.len() >= 2 { ticks } else { vec![self.low, (self.low * self.high).sqrt(), self.high] }
    }
}

/// A chart with its legend. `size` and `value` write what stands at the axes.
pub(super) fn lines(
    title: &str,
    series: &[Series],
    size: impl Fn(f64) -> String,
    value: impl Fn(f64) -> String,
) -> Markup {
    let points = || series.iter().flat_map(|one| one.points.iter().copied());
    if points().next().is_none() {
        return html! {};
    }
    let x = Axis::of(points().map(|point| point.0), LEFT + 8.0, WIDTH - RIGHT);
    let y = Axis::of(points().map(|point| point.1), HEIGHT - BOTTOM - 8.0, TOP);
    html! {
        figure {
            figcaption { (title) }
            svg viewBox=(format!("0 0 {WIDTH} {HEIGHT}")) role="img" aria-label=(format!("{title}; the figures stand in the table of cases")) {
                @for tick in y.ticks(10.0) {
                    line.grid x1=(LEFT) x2=(WIDTH - RIGHT) y1=(place(y.at(tick))) y2=(place(y.at(tick))) {}
                    text.tick x=(LEFT - 6.0) y=(place(y.at(tick) + 4.0)) text-anchor="end" { (value(tick)) }
                }
                @for tick in x.ticks(2.0) {
                    line.grid x1=(place(x.at(tick))) x2=(place(x.at(tick))) y1=(TOP) y2=(HEIGHT - BOTTOM) {}
                    text.tick x=(place(x.at(tick))) y=(HEIGHT - BOTTOM + 18.0) text-anchor="middle" { (size(tick)) }
                }
                @for one in series {
                    @let class = format!("s{}", one.style % STYLES);
                    polyline.line.(class) points=(path(one, &x, &y)) {}
                    @for (at, height) in &one.points {
                        circle.dot.(class) cx=(place(x.at(*at))) cy=(place(y.at(*height))) r="3.5" {
                            title { (one.label) ", " (size(*at)) ": " (value(*height)) }
                        }
                    }
                }
            }
            ul.legend {
                @for one in series {
                    li {
                        svg.key viewBox="0 0 24 8" aria-hidden="true" {
                            line.line.(format!("s{}", one.style % STYLES)) x1="0" x2="24" y1="4" y2="4" {}
                        }
                        " " (one.label)
                    }
                }
            }
        }
    }
}

fn path(series: &Series, x: &Axis, y: &Axis) -> String {
    let point = |(at, height): &(f64, f64)| format!("{},{}", place(x.at(*at)), place(y.at(*height)));
    series.points.iter().map(point).collect::<Vec<_>>().join(" ")
}

/// A coordinate with one decimal: more would only make the file larger.
fn place(value: f64) -> String {
    format!("{value:.1}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_axis_spreads_powers_evenly() {
        let axis = Axis::of([1.0, 100.0].into_iter(), 0.0, 200.0);
        assert!((axis.at(10.0) - 100.0).abs() < 1e-9);
        assert_eq!(axis.ticks(10.0).len(), 3);
        let single = Axis::of([5.0].into_iter(), 0.0, 10.0);
        assert!((single.at(5.0) - 5.0).abs() < 1e-9);
        assert!(single.ticks(10.0).iter().all(|tick| tick.is_finite()));
    }

    #[test]
    fn nothing_to_draw_draws_nothing() {
        assert!(lines("t", &[], |v| v.to_string(), |v| v.to_string()).into_string().is_empty());
    }
}
