//! Plots of quantities by rate or over time. Each engine has a line with its spread, and single runs are dots. Plots are
//! drawn as SVG; [`png`] converts them to bitmaps.

pub(crate) mod png;

use std::fmt::Write;

/// One line, or a cloud of dots.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Series {
    /// The name in the legend.
    pub(crate) name: String,
    /// The colour's index.
    pub(crate) colour: usize,
    /// Draws a dashed line and hollow points, for a second quantity of the same engine or for values that were not
    /// measured.
    pub(crate) dashed: bool,
    /// Draws no line between the points.
    pub(crate) dots: bool,
    /// Points, in ascending order of x.
    pub(crate) points: Vec<(f64, f64)>,
    /// Minimum and maximum at each point, for repeated runs; otherwise empty.
    pub(crate) range: Vec<(f64, f64)>,
}

/// A plot.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Chart {
    pub(crate) title: String,
    pub(crate) x: String,
    pub(crate) y: String,
    pub(crate) series: Vec<Series>,
    /// Names at the positions 0, 1, 2… of the x axis, instead of numbers.
    pub(crate) places: Vec<String>,
    /// Small lines below the plot, which say what was measured and where, for pictures that stand alone.
    pub(crate) foot: Vec<String>,
}

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 420.0;
const LEFT: f64 = 78.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 64.0;
const BOTTOM: f64 = 58.0;
/// Height of a line below the plot.
const FOOT: f64 = 14.0;
/// Colours that most people with colour blindness can tell apart (Okabe and Ito).
const COLOURS: [&str; 7] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000"];
/// A picture has no more columns than this, so more points would not be visible.
const MOST: usize = 700;

/// Escapes text for SVG and HTML.
pub(crate) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// An axis from 0 or below to at least `most`, with round steps.
fn steps(least: f64, most: f64) -> (f64, f64, f64) {
    let least = least.min(0.0);
    let span = (most - least).max(1e-9);
    let rough = span / 5.0;
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 2.5, 5.0, 10.0].into_iter().map(|times| times * power).find(|step| *step >= rough * 0.999);
    let step = step.unwrap_or(power * 10.0);
    ((least / step).floor() * step, (most / step - 1e-9).ceil().max(1.0) * step, step)
}

/// Formats the number at a tick.
fn tick(value: f64, step: f64) -> String {
    let (scale, unit) = match step.abs().max(value.abs()) {
        most if most >= 1e9 => (1e9, "G"),
        most if most >= 1e6 => (1e6, "M"),
        most if most >= 1e4 => (1e3, "k"),
        _ => (1.0, ""),
    };
    let step = step / scale;
    let digits = (0..4).find(|digits| (step * 10f64.powi(*digits)).fract().abs() < 1e-6).unwrap_or(4) as usize;
    if value == 0.0 { "0".to_owned() } else { format!("{:.digits$}{unit}", value / scale) }
}

/// Reduces `points` to at most [`MOST`]. Each stretch keeps its minimum and maximum, so that no peak is lost.
fn thinned(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    if points.len() <= MOST {
        return points.to_vec();
    }
    let stretch = points.len().div_ceil(MOST / 2);
    let mut kept = Vec::with_capacity(MOST);
    for part in points.chunks(stretch) {
        let by = |a: &&(f64, f64), b: &&(f64, f64)| a.1.total_cmp(&b.1);
        if let (Some(low), Some(high)) = (part.iter().min_by(by), part.iter().max_by(by)) {
            kept.extend(if low.0 <= high.0 { [*low, *high] } else { [*high, *low] });
        }
    }
    kept
}

impl Chart {
    /// Whether the chart has nothing to draw.
    pub(crate) fn is_empty(&self) -> bool {
        self.series.iter().all(|series| series.points.iter().all(|(x, y)| !x.is_finite() || !y.is_finite()))
    }

    /// The plot as an SVG document.
    pub(crate) fn svg(&self) -> String {
        let finite = |(x, y): &(f64, f64)| x.is_finite() && y.is_finite();
        let all = || self.series.iter().flat_map(|series| series.points.iter().copied()).filter(finite);
        let ranges = || self.series.iter().flat_map(|series| series.range.iter().copied()).filter(finite);
        let most_y = all().map(|(_, y)| y).chain(ranges().map(|(_, high)| high)).fold(0.0, f64::max);
        let least_y = all().map(|(_, y)| y).fold(0.0, f64::min);
        let (low_y, high_y, step_y) = steps(least_y, if most_y > 0.0 { most_y } else { 1.0 });
        let (low_x, high_x, step_x) = if self.places.is_empty() {
            let most = all().map(|(x, _)| x).fold(0.0, f64::max);
            let (low, high, step) = steps(0.0, if most > 0.0 { most } else { 1.0 });
            // The time axis ends with the data, because a round number would leave empty space.
            (low, if most > 0.0 { most.max(high - step * 0.9) } else { high }, step)
        } else {
            (-0.5, self.places.len() as f64 - 0.5, 1.0)
        };
        let (wide, tall) = (WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM);
        let height = HEIGHT + FOOT * self.foot.len() as f64;
        let px = |x: f64| LEFT + (x - low_x) / (high_x - low_x) * wide;
        let py = |y: f64| TOP + tall - (y - low_y) / (high_y - low_y) * tall;
        let mut out = String::new();
        // Writing to a String cannot fail.
        let _ = write!(
            out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" \
             font-family=\"DejaVu Sans, Liberation Sans, Arial, sans-serif\" font-size=\"12\" role=\"img\">\
             <title>{title}</title><rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#fff\"/>\
             <text x=\"{LEFT}\" y=\"20\" font-size=\"15\" font-weight=\"bold\">{title}</text>",
            title = escaped(&self.title)
        );
        let mut y = low_y;
        while y <= high_y + step_y * 0.01 {
            let at = py(y);
            let _ = write!(
                out,
                "<line x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{at:.1}\" y2=\"{at:.1}\" stroke=\"#ddd\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                WIDTH - RIGHT,
                LEFT - 8.0,
                at + 4.0,
                tick(y, step_y)
            );
            y += step_y;
        }
        let bottom = TOP + tall;
        let mut below = |at: f64, text: &str| {
            let _ = write!(
                out,
                "<line x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{bottom:.1}\" y2=\"{:.1}\" stroke=\"#444\"/>\
                 <text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
                bottom + 5.0,
                bottom + 19.0,
                escaped(text)
            );
        };
        if self.places.is_empty() {
            let mut x = low_x;
            while x <= high_x + step_x * 0.01 {
                below(px(x), &tick(x, step_x));
                x += step_x;
            }
        } else {
            for (place, name) in self.places.iter().enumerate() {
                below(px(place as f64), name);
            }
        }
        let _ = write!(
            out,
            "<line x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{bottom:.1}\" y2=\"{bottom:.1}\" stroke=\"#444\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>\
             <text transform=\"translate(16 {:.1}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
            WIDTH - RIGHT,
            LEFT + wide / 2.0,
            HEIGHT - 14.0,
            escaped(&self.x),
            TOP + tall / 2.0,
            escaped(&self.y)
        );
        for series in &self.series {
            draw(series, &px, &py, &mut out);
        }
        self.legend(&mut out);
        for (at, line) in self.foot.iter().enumerate() {
            let _ = write!(
                out,
                "<text x=\"16\" y=\"{:.1}\" font-size=\"10\" fill=\"#666\">{}</text>",
                HEIGHT - 2.0 + FOOT * at as f64 + 8.0,
                escaped(line)
            );
        }
        out.push_str("</svg>\n");
        out
    }

    fn legend(&self, out: &mut String) {
        if self.series.len() < 2 && self.series.iter().all(|series| series.name.is_empty()) {
            return;
        }
        let (mut x, mut y) = (LEFT, 40.0);
        for series in self.series.iter().filter(|series| !series.name.is_empty()) {
            let width = 34.0 + series.name.chars().count() as f64 * 7.2;
            if x + width > WIDTH - RIGHT && x > LEFT {
                (x, y) = (LEFT, y + 15.0);
            }
            let colour = COLOURS[series.colour % COLOURS.len()];
            let dash = if series.dashed { " stroke-dasharray=\"5 3\"" } else { "" };
            let mark = if series.dots {
                format!("<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"4\" fill=\"{colour}\"/>", x + 10.0, y - 4.0)
            } else {
                format!(
                    "<line x1=\"{x:.1}\" x2=\"{:.1}\" y1=\"{:.1}\" y2=\"{:.1}\" stroke=\"{colour}\" stroke-width=\"2.5\"{dash}/>",
                    x + 20.0,
                    y - 4.0,
                    y - 4.0
                )
            };
            let _ = write!(out, "{mark}<text x=\"{:.1}\" y=\"{y:.1}\">{}</text>", x + 25.0, escaped(&series.name));
            x += width;
        }
    }
}

fn draw(series: &Series, px: &dyn Fn(f64) -> f64, py: &dyn Fn(f64) -> f64, out: &mut String) {
    let colour = COLOURS[series.colour % COLOURS.len()];
    for ((x, _), (low, high)) in series.points.iter().zip(&series.range) {
        if low.is_finite() && high.is_finite() && low < high {
            let (x, low, high) = (px(*x), py(*low), py(*high));
            let _ = write!(
                out,
                "<path d=\"M{x:.1} {low:.1}V{high:.1}M{:.1} {low:.1}h8M{:.1} {high:.1}h8\" stroke=\"{colour}\" stroke-width=\"1.2\" fill=\"none\"/>",
                x - 4.0,
                x - 4.0
            );
        }
    }
    let points = thinned(&series.points);
    if !series.dots {
        let mut path = String::new();
        let mut next = 'M';
        for (x, y) in &points {
            if y.is_finite() {
                let _ = write!(path, "{next}{:.1} {:.1}", px(*x), py(*y));
                next = 'L';
            } else {
                next = 'M';
            }
        }
        let dash = if series.dashed { " stroke-dasharray=\"6 4\"" } else { "" };
        let _ = write!(
            out,
            "<path d=\"{path}\" stroke=\"{colour}\" stroke-width=\"2\" fill=\"none\" stroke-linejoin=\"round\"{dash}/>"
        );
    }
    // Mark each point if there are few, to tell measurements from the line between them.
    if series.dots || !series.range.is_empty() || (3..=40).contains(&points.len()) {
        let fill = match series.dashed {
            true => format!("fill=\"#fff\" stroke=\"{colour}\" stroke-width=\"1.5\""),
            false => format!("fill=\"{colour}\" fill-opacity=\"0.8\""),
        };
        for (x, y) in points.iter().filter(|(_, y)| y.is_finite()) {
            let radius = if series.dots { 4.5 } else { 3.0 };
            let _ = write!(out, "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"{radius}\" {fill}/>", px(*x), py(*y));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart() -> Chart {
        let series = |name: &str, colour, points: &[(f64, f64)]| Series {
            name: name.to_owned(),
            colour,
            dashed: colour == 1,
            dots: false,
            points: points.to_vec(),
            range: points.iter().map(|(_, y)| (y * 0.9, y * 1.1)).collect(),
        };
        Chart {
            title: "Lost <by> rate".to_owned(),
            x: "packets a second".to_owned(),
            y: "lost, %".to_owned(),
            series: vec![
                series("a & b", 0, &[(1000.0, 0.0), (2000.0, 1.0), (3000.0, f64::NAN), (4000.0, 20.0)]),
                series("c", 1, &[(1000.0, 0.0), (4000.0, 40.0)]),
            ],
            places: Vec::new(),
            foot: vec!["a machine".to_owned()],
        }
    }

    #[test]
    fn axes_have_round_numbers() {
        assert_eq!(steps(0.0, 44.0), (0.0, 50.0, 10.0));
        assert_eq!(steps(0.0, 0.93), (0.0, 1.0, 0.2));
        assert_eq!(tick(2500.0, 500.0), "2500");
        assert_eq!(tick(20_000.0, 5000.0), "20k");
        assert_eq!(tick(2_500_000.0, 500_000.0), "2.5M");
        assert_eq!(tick(0.4, 0.2), "0.4");
    }

    #[test]
    fn a_picture_is_drawn() {
        let svg = chart().svg();
        assert!(svg.contains("Lost &lt;by&gt; rate") && svg.contains("a &amp; b") && !svg.contains("NaN"), "{svg}");
        assert!(svg.contains("a machine"));
        let (png, _) = png::render(&svg).unwrap();
        assert_eq!(&png[..8], b"\x89PNG\r\n\x1a\n");
        assert!(png.len() > 5000, "{}", png.len());
    }

    #[test]
    fn peaks_survive_thinning() {
        let mut points: Vec<(f64, f64)> = (0..10_000).map(|x| (f64::from(x), 1.0)).collect();
        points[4321].1 = 99.0;
        let thin = thinned(&points);
        assert!(thin.len() <= MOST && thin.iter().any(|(_, y)| *y == 99.0));
        assert!(thin.windows(2).all(|pair| pair[0].0 <= pair[1].0));
    }

    #[test]
    fn nothing_to_draw_is_no_failure() {
        let empty = Chart { series: Vec::new(), ..chart() };
        assert!(empty.is_empty());
        assert!(empty.svg().ends_with("</svg>\n"));
    }
}
