//! Names of functions, types and causes (IEC 60870-5-101, clauses 7.2.1 and 7.2.3), and element lengths.

/// Control functions: the first byte of the control field.
pub(super) const FUNCTIONS: &[(&str, u64)] = &[
    ("startdt_act", 0x07),
    ("startdt_con", 0x0b),
    ("stopdt_act", 0x13),
    ("stopdt_con", 0x23),
    ("testfr_act", 0x43),
    ("testfr_con", 0x83),
];

/// Causes of transmission.
pub(super) const CAUSES: &[(&str, u64)] = &[
    ("periodic", 1),
    ("background", 2),
    ("spontaneous", 3),
    ("initialized", 4),
    ("request", 5),
    ("activation", 6),
    ("activation_con", 7),
    ("deactivation", 8),
    ("deactivation_con", 9),
    ("activation_end", 10),
    ("return_remote", 11),
    ("return_local", 12),
    ("file", 13),
    ("interrogated", 20),
    ("counter_interrogated", 37),
    ("unknown_type", 44),
    ("unknown_cause", 45),
    ("unknown_station", 46),
    ("unknown_object", 47),
];

macro_rules! types {
    ($($name:literal $number:literal $len:expr;)*) => {
        /// Types of data.
        pub(super) const TYPES: &[(&str, u64)] = &[$(($name, $number)),*];

        /// Length of an element of a type; `None` if it is unknown or variable.
        pub(super) const fn element_len(kind: u8) -> Option<usize> {
            match kind {
                $($number => $len,)*
                _ => None,
            }
        }
    };
}

types! {
    "m_sp_na_1" 1 Some(1);
    "m_dp_na_1" 3 Some(1);
    "m_st_na_1" 5 Some(2);
    "m_bo_na_1" 7 Some(5);
    "m_me_na_1" 9 Some(3);
    "m_me_nb_1" 11 Some(3);
    "m_me_nc_1" 13 Some(5);
    "m_it_na_1" 15 Some(5);
    "m_ps_na_1" 20 Some(5);
    "m_me_nd_1" 21 Some(2);
    "m_sp_tb_1" 30 Some(8);
    "m_dp_tb_1" 31 Some(8);
    "m_st_tb_1" 32 Some(9);
    "m_bo_tb_1" 33 Some(12);
    "m_me_td_1" 34 Some(10);
    "m_me_te_1" 35 Some(10);
    "m_me_tf_1" 36 Some(12);
    "m_it_tb_1" 37 Some(12);
    "m_ep_td_1" 38 Some(10);
    "m_ep_te_1" 39 Some(11);
    "m_ep_tf_1" 40 Some(11);
    "c_sc_na_1" 45 Some(1);
    "c_dc_na_1" 46 Some(1);
    "c_rc_na_1" 47 Some(1);
    "c_se_na_1" 48 Some(3);
    "c_se_nb_1" 49 Some(3);
    "c_se_nc_1" 50 Some(5);
    "c_bo_na_1" 51 Some(4);
    "c_sc_ta_1" 58 Some(8);
    "c_dc_ta_1" 59 Some(8);
    "c_rc_ta_1" 60 Some(8);
    "c_se_ta_1" 61 Some(10);
    "c_se_tb_1" 62 Some(10);
    "c_se_tc_1" 63 Some(12);
    "c_bo_ta_1" 64 Some(11);
    "m_ei_na_1" 70 Some(1);
    "c_ic_na_1" 100 Some(1);
    "c_ci_na_1" 101 Some(1);
    "c_rd_na_1" 102 Some(0);
    "c_cs_na_1" 103 Some(7);
    "c_rp_na_1" 105 Some(1);
    "c_ts_ta_1" 107 Some(9);
    "p_me_na_1" 110 Some(3);
    "p_me_nb_1" 111 Some(3);
    "p_me_nc_1" 112 Some(5);
    "p_ac_na_1" 113 Some(1);
    "f_fr_na_1" 120 Some(6);
    "f_sr_na_1" 121 Some(7);
    "f_sc_na_1" 122 Some(4);
    "f_ls_na_1" 123 Some(5);
    "f_af_na_1" 124 Some(4);
    "f_sg_na_1" 125 None;
    "f_dr_ta_1" 126 Some(13);
}
