//! Renders an SVG document as a bitmap.

#[cfg(feature = "plots")]
pub(crate) use drawn::render;

/// As with the feature `plots`, but it only returns a sentence that says how to get pictures.
///
/// # Errors
/// Always.
#[cfg(not(feature = "plots"))]
pub(crate) fn render(_svg: &str) -> Result<(Vec<u8>, bool), String> {
    Err("this program was built without pictures (the feature lab)".into())
}

#[cfg(feature = "plots")]
mod drawn {
    use std::sync::LazyLock;

    use resvg::tiny_skia::{Pixmap, Transform};
    use resvg::usvg::{Options, Tree, fontdb};

    /// Twice the drawing's units, for sharp pictures on paper and on high-resolution screens.
    const SCALE: f32 = 2.0;

    static OPTIONS: LazyLock<Options<'static>> = LazyLock::new(|| {
        let mut options = Options::default();
        let fonts = options.fontdb_mut();
        fonts.load_system_fonts();
        // Use any font if none of the drawing's families is installed.
        let any = fonts.faces().find_map(|face| face.families.first().map(|(name, _)| name.clone()));
        if let Some(name) = any
            && fonts.query(&fontdb::Query { families: &[fontdb::Family::SansSerif], ..Default::default() }).is_none()
        {
            fonts.set_sans_serif_family(name);
        }
        options
    });

    /// Renders the document as PNG. The flag says whether fonts for its text were found.
    ///
    /// # Errors
    /// A sentence, if it cannot be rendered.
    pub(crate) fn render(svg: &str) -> Result<(Vec<u8>, bool), String> {
        let tree = Tree::from_str(svg, &OPTIONS).map_err(|error| error.to_string())?;
        let size = tree.size();
        let (width, height) = ((size.width() * SCALE) as u32, (size.height() * SCALE) as u32);
        let mut picture = Pixmap::new(width, height).ok_or("the picture has no size")?;
        resvg::render(&tree, Transform::from_scale(SCALE, SCALE), &mut picture.as_mut());
        let bytes = picture.encode_png().map_err(|error| error.to_string())?;
        Ok((bytes, !OPTIONS.fontdb.is_empty()))
    }
}
